from __future__ import annotations

import asyncio
import json
import logging
import threading
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, HoldfastError
from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from holdfast._engine.runner import Budget, Tick
from holdfast._engine.runners.http import LONGEST_ANSWER, HttpCall
from tests.kit.fleet import SOON, fast, runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.fleet import Connect

TOKEN = "s3cret-żółw-token"  # noqa: S105 - a test's


class Service:
    """A service that answers as the test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.status, self.answer, self.headers = 200, b'{"sent": 3}', dict[str, str]()
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.asked_at_all, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.url = ""


@contextmanager
def served(service: Service) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            service.asked.append((self.path, headers, json.loads(body)))
            service.asked_at_all.set()
            service.go_on.wait(SOON)
            try:
                self.send_response(service.status)
                for name, value in service.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(service.answer)
            except OSError:
                pass  # nobody waits for the answer any more

        do_GET = do_POST  # noqa: N815 - the name that the standard library looks for

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        service.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield
        finally:
            service.go_on.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    with served(service):
        yield service


def asked(service: Service, **budget: Any) -> Tick:
    settings = fast(api_base_url=f"{service.url}/api/", api_service_token=TOKEN)
    return Tick(name="reminders", settings=settings, budget=Budget(**budget), run_id=7)


async def test_it_posts_the_token_and_the_budget_and_returns_the_counts(service: Service) -> None:
    call = HttpCall("/internal/reminders?dry=1")
    assert await call.tick(asked(service, items=5, seconds=10.0)) == {"sent": 3}
    ((path, headers, body),) = service.asked
    assert path == "/api/internal/reminders?dry=1"
    assert headers["x-service-token"].encode("latin-1").decode() == TOKEN
    assert headers["content-type"] == "application/json"
    assert (body["runner"], body["run_id"], body["max_items"]) == ("reminders", 7, 5)
    assert 0 < body["max_ms"] <= 10_000


@pytest.mark.parametrize("answer", [b"", b" \n", b"{}"])
async def test_an_answer_without_counts(service: Service, answer: bytes) -> None:
    service.status, service.answer = 202, answer
    assert await HttpCall("/x").tick(asked(service)) == {}


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 500, 503])
async def test_any_other_status_is_a_failure_and_redirects_are_not_followed(service: Service, status: int) -> None:
    service.status = status
    service.headers = {"location": f"{service.url}/elsewhere"}
    with pytest.raises(HoldfastError, match=f"/x answered {status}") as caught:
        await HttpCall("/x").tick(asked(service))
    assert getattr(caught.value, "code", None) == f"http_{status}"
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[1]", b"7", b'{"a": "b"}', b'{"a": 1.5}', b"\xff\xfe", b'{"a":' * 20_000]
)
async def test_answers_that_are_no_counts(service: Service, answer: bytes) -> None:
    service.answer = answer
    with pytest.raises(HoldfastError, match=r"must answer with a JSON object|more than"):
        await HttpCall("/x").tick(asked(service))


async def test_an_answer_that_is_too_long(service: Service) -> None:
    service.answer = b'{"a": 1}' + b" " * LONGEST_ANSWER * 10
    with pytest.raises(HoldfastError, match=f"more than {LONGEST_ANSWER} bytes"):
        await HttpCall("/x").tick(asked(service))


@pytest.mark.parametrize("by_budget", [False, True])
async def test_a_service_that_does_not_answer_in_time(service: Service, by_budget: bool) -> None:
    service.go_on.clear()
    call = HttpCall("/x", timeout=timedelta(seconds=SOON if by_budget else 0.3))
    with pytest.raises(HoldfastError, match=r"no answer from /x within 0\.\d+ s"):
        await call.tick(asked(service, seconds=0.3 if by_budget else SOON))
    await asyncio.to_thread(_join_threads)


async def test_a_service_that_drips_is_bounded_in_all(service: Service) -> None:
    """Each byte comes in time; the whole does not."""
    let_go = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"HTTP/1.1 200 OK\r\n")
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            writer.close()
            let_go.set()

    async with asyncio.timeout(SOON), await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(HoldfastError, match="no answer"):
            await HttpCall("/x", timeout=timedelta(seconds=0.3)).tick(asked(service))
        await let_go.wait()
    await asyncio.to_thread(_join_threads)


def _join_threads() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("holdfast-runner-"):
            thread.join(SOON)
            assert not thread.is_alive()


async def test_an_unreachable_service_is_a_failed_tick() -> None:
    settings = fast(api_base_url="http://127.0.0.1:1", api_service_token=TOKEN)
    with pytest.raises(HoldfastError, match="calling /x failed: ConnectionRefusedError"):
        await HttpCall("/x").tick(Tick(name="r", settings=settings))


@pytest.mark.parametrize("given", [{}, {"api_base_url": "http://x"}, {"api_service_token": "t"}])
async def test_settings_that_are_missing(given: dict[str, str]) -> None:
    with pytest.raises(HoldfastError, match="HOLDFAST_API_BASE_URL and HOLDFAST_API_SERVICE_TOKEN"):
        await HttpCall("/x").tick(Tick(name="r", settings=fast(**given)))


@pytest.mark.parametrize("path", ["x", "", "/a b", "/ż", "/a\r\nx-service-token: other"])
def test_paths_that_cannot_be(path: str) -> None:
    with pytest.raises(ValueError, match="path: expected percent-encoded ASCII that begins with /"):
        HttpCall(path)


async def test_as_a_runner_of_an_application(
    database: str, connect: Connect, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    app = Holdfast(database)
    app.http_runner("reminders", "/internal/reminders", timeout=timedelta(seconds=5))
    settings = fast(api_base_url=service.url, api_service_token=TOKEN, tick_runners=("reminders",))
    conn = connect()
    with caplog.at_level(logging.DEBUG):
        assert (await run_tick(application_of(app, settings))).exit_code == 0
        service.status = 503
        service.answer = TOKEN.encode()
        result = await run_tick(application_of(app, settings))
    assert result.exit_code == 1
    assert runs(conn) == [
        ("reminders", "completed", {"sent": 3}, None),
        ("reminders", "failed", None, "http_503"),
    ]
    # The token is nowhere: not in a row, not in the log, not in what is printed.
    logged = [
        repr(result),
        repr(settings),
        caplog.text,
        *map(repr, conn.execute("SELECT * FROM holdfast.run").fetchall()),
    ]
    assert not [text for text in logged if TOKEN in text or "s3cret" in text]
