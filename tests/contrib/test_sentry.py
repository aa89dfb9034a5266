"""The events that reach Sentry: the real client in a real worker's process, and a server that receives them."""

from __future__ import annotations

import gzip
import json
import queue
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg
import pytest

from tests.kit.commands import PATIENCE, Running

if TYPE_CHECKING:
    from collections.abc import Iterator


class Sentry:
    """Takes envelopes while its block runs, and keeps the events of them."""

    def __init__(self) -> None:
        events: queue.Queue[dict[str, Any]] = queue.Queue()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                for event in _events_in(body):
                    events.put(event)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - named by the base class

        self._events = events
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://key@127.0.0.1:{self._server.server_port}/1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self) -> dict[str, Any]:
        return self._events.get(timeout=PATIENCE)

    @property
    def is_empty(self) -> bool:
        return self._events.empty()


def _events_in(envelope: bytes) -> Iterator[dict[str, Any]]:
    lines = iter(envelope.splitlines()[1:])
    for header in lines:
        item = next(lines)
        if json.loads(header)["type"] == "event":
            yield json.loads(item)


@pytest.fixture
def sentry() -> Iterator[Sentry]:
    with Sentry() as sentry:
        yield sentry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).with_name("sentry_shop.py"), tmp_path / "shop.py")
    return tmp_path


def enqueue(database: str, kind: str, max_attempts: int) -> int:
    with psycopg.connect(database) as conn:
        row = conn.execute("SELECT holdfast.enqueue(%s, max_attempts => %s)", [kind, max_attempts]).fetchone()
    assert row is not None
    return int(row[0])


def stop(worker: Running) -> None:
    """Let the client send what it still has."""
    worker.process.terminate()
    assert worker.process.wait(PATIENCE) == 0


def test_a_dead_letter_is_an_event_and_a_retry_is_not(database: str, sentry: Sentry, folder: Path) -> None:
    job = enqueue(database, "charge", 2)
    with Running("worker", "shop:app", database=database, cwd=folder, SHOP_SENTRY=sentry.address) as worker:
        event = sentry.take()
        stop(worker)
    assert sentry.is_empty, "the lines of the log are not reported once more"
    assert (event["level"], event["transaction"], event["release"]) == ("error", "charge", "shop@1")
    assert event["tags"]["kind"] == "charge"
    assert event["tags"]["error_code"] == "LookupError"
    assert event["contexts"]["job"] == {
        "id": job,
        "attempt": 2,
        "will_retry": False,
        "error": "no card, password=***",
    }
    cause, raised = event["exception"]["values"]
    assert (cause["type"], cause["value"]) == ("ConnectionError", "cannot reach amqp://shop:***@broker")
    assert (raised["type"], raised["value"]) == ("LookupError", "no card, password=***")
    assert raised["stacktrace"]["frames"][-1]["function"] == "charge"


@pytest.mark.nightly
def test_every_attempt_if_asked_for(database: str, sentry: Sentry, folder: Path) -> None:
    enqueue(database, "charge", 2)
    reported = {"SHOP_SENTRY": sentry.address, "SHOP_TELLS_ALL": "1"}
    with Running("worker", "shop:app", database=database, cwd=folder, **reported) as worker:
        events = [sentry.take(), sentry.take()]
        stop(worker)
    assert sentry.is_empty
    seen = sorted((event["contexts"]["job"]["attempt"], event["level"]) for event in events)
    assert seen == [(1, "warning"), (2, "error")]


@pytest.mark.nightly
def test_what_a_handler_refuses(database: str, sentry: Sentry, folder: Path) -> None:
    enqueue(database, "refuse", 3)
    with Running("worker", "shop:app", database=database, cwd=folder, SHOP_SENTRY=sentry.address) as worker:
        event = sentry.take()
        stop(worker)
    assert event["exception"]["values"][-1]["value"] == "sold out"


@pytest.mark.nightly
def test_a_job_that_kills_its_worker(database: str, sentry: Sentry, folder: Path) -> None:
    job = enqueue(database, "die", 1)
    quick = {
        "SHOP_SENTRY": sentry.address,
        "HOLDFAST_LEASE_MS": "3000",
        "HOLDFAST_HEARTBEAT_MS": "750",
        "HOLDFAST_REAP_INTERVAL_MS": "750",
        "HOLDFAST_SHUTDOWN_TIMEOUT_MS": "2000",
    }
    with Running("worker", "shop:app", database=database, cwd=folder, **quick) as worker:
        assert worker.ended() == 3, worker.log
    with Running("worker", "shop:app", database=database, cwd=folder, **quick) as worker:
        event = sentry.take()
        stop(worker)
    assert sentry.is_empty
    assert event["fingerprint"] == ["die", "lease_expired"]
    assert event["message"].endswith("did not renew the lease")
    assert event["contexts"]["job"]["id"] == job
