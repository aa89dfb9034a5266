"""The symptoms of docs/how-to/troubleshooting.md, each brought about on a database of its own.

A function is named as the heading of its section. Everything that it starts ends with the test.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg
import pytest

from tests.deploy.program import Program
from tests.docs.block import Block
from tools import faketime
from tools.pgbouncer import PgBouncer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.docs.page import Run
    from tools.postgres import Server

SHOP = """
import asyncio
import time

from holdfast import Cron, Event, Holdfast, Job
from holdfast.sinks import WebhookSink
from dataclasses import dataclass

app = Holdfast()


@dataclass
class InvoicePaid:
    invoice: int


paid = app.event("invoice.paid", InvoicePaid)


@app.job("receipt.send", queue="mail")
async def send_receipt(job: Job[None], seconds: float = 0) -> None:
    await asyncio.sleep(seconds)


@app.job("report.write")
async def write_report(job: Job[None], order_id: int) -> None:
    raise ConnectionError("the mail server refused the connection")


@app.job("pdf.render", executor="thread")
def render(job: Job[None]) -> None:
    time.sleep(20)
"""
RELAY = f"""{SHOP}
hook = WebhookSink("http://127.0.0.1:PORT/hook", ["whsec_" + "c2VjcmV0" * 4], allow_private=True)
app.relay("to-partner", paid, to=hook, start="beginning")
app.relay("to-crm", paid, to=hook, start="beginning", poison="park_key")
"""
LEDGER = f"""{SHOP}
@app.on(paid, name="ledger", start="beginning")
async def book(job: Job[None], event: Event[InvoicePaid]) -> None: ...
"""
NIGHTLY = f"""{SHOP}
app.schedule("nightly", write_report.new(7), every=Cron("0 3 * * *"))
"""
# Far longer than any of this takes.
PATIENCE = 60.0


class Stage:
    """A database, a folder with the application `shop:app`, and what goes on in them."""

    def __init__(self, folder: Path, variables: dict[str, str], database: str, server: Server) -> None:
        self.folder, self.variables, self.database, self.server = folder, variables, database, server
        self._ends = ExitStack()
        (folder / "shop.py").write_text(SHOP)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def keep(self, context: Any) -> Any:
        """Enter a context until the end of the test."""
        return self._ends.enter_context(context)

    def sql(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database, autocommit=True) as conn:
            cursor = conn.execute(query.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def wait_for(self, query: str) -> None:
        """Return when a query has a row."""
        deadline = time.monotonic() + PATIENCE
        while not self.sql(query):
            assert time.monotonic() < deadline, query
            self.sql("SELECT pg_sleep(0.05)")

    def enqueue(self, kind: str, payload: str = "{}", queue: str = "default", attempts: int = 3) -> None:
        query = "SELECT holdfast.enqueue(%s, %s::json, queue => %s, max_attempts => %s)"
        self.sql(query, kind, payload, queue, attempts)

    def worker(self, *options: str, **settings: str) -> Program:
        """Start a worker, and return when it runs."""
        command = ("holdfast", "worker", "shop:app", *options)
        program = Program(command, cwd=self.folder, env=self.variables | settings)
        worker: Program = self.keep(program)
        worker.wait_for_line("worker started")
        return worker


def jobs_do_not_start(stage: Stage) -> None:
    stage.enqueue("receipt.send", queue="mail")


def a_queue_is_paused(stage: Stage) -> None:
    stage.enqueue("receipt.send", queue="mail")
    stage.sql("INSERT INTO holdfast.queue (name, paused) VALUES ('mail', true)")


def an_order_key_is_stopped(stage: Stage) -> None:
    blocking = {"kind": "report.write", "payload": {"order_id": 7}, "max_attempts": 1, "order_block": True}
    stage.sql("SELECT holdfast.enqueue_jobs(%s)", json.dumps([blocking | {"order_key": "customer 7"}] * 2))
    stage.worker()
    stage.wait_for("SELECT 1 FROM holdfast.job_failed")


def jobs_start_late(stage: Stage) -> None:
    _busy(stage, 3)


def jobs_start_seconds_late(stage: Stage) -> None:
    pooler = stage.keep(PgBouncer(stage.server))
    stage.variables["PGPORT"] = str(pooler.port)


def a_queue_grows(stage: Stage) -> None:
    _busy(stage, 200)


def _busy(stage: Stage, waiting: int) -> None:
    """One handler runs for long, and others wait for its slot."""
    stage.enqueue("receipt.send", '{"seconds": 60}', "mail")
    stage.worker("--queues", "mail=1", "--log-format", "human")
    stage.wait_for("SELECT 1 FROM holdfast.job WHERE status = 'processing'")
    stage.sql(
        "INSERT INTO holdfast.job (kind, queue, payload, created_at, available_at) "
        "SELECT 'receipt.send', 'mail', '{}', now() - interval '10 minutes', now() - interval '10 minutes' "
        f"FROM generate_series(1, {waiting})"
    )
    stage.sql("SELECT holdfast.take_census(interval '0', false)")


def a_job_runs_twice(stage: Stage) -> None:
    quick = {"HOLDFAST_LEASE_MS": "1500"}
    stage.enqueue("receipt.send", '{"seconds": 5}', "mail")
    first = stage.worker(**quick)
    stage.wait_for("SELECT 1 FROM holdfast.job WHERE status = 'processing'")
    first.process.kill()
    first.process.wait()
    stage.sql("UPDATE holdfast.job SET payload = '{}'")
    stage.worker(**quick)
    stage.wait_for("SELECT 1 FROM holdfast.job_history")


def dead_letters_rise(stage: Stage) -> None:
    for order in (7, 8, 9):
        stage.enqueue("report.write", f'{{"order_id": {order}}}', attempts=1)
    stage.worker()
    stage.wait_for("SELECT 1 FROM holdfast.job_failed HAVING count(*) = 3")


def a_payload_does_not_fit(stage: Stage) -> None:
    stage.enqueue("report.write", '{"number": 7}')
    stage.worker()
    stage.wait_for("SELECT 1 FROM holdfast.attempt")


def a_worker_exits(stage: Stage) -> None:
    stage.sql("DELETE FROM holdfast.migration WHERE number = (SELECT max(number) FROM holdfast.migration)")


def a_worker_does_not_stop(stage: Stage) -> None:
    stage.enqueue("pdf.render")
    worker = stage.worker(HOLDFAST_SHUTDOWN_TIMEOUT_MS="200")
    stage.wait_for("SELECT 1 FROM holdfast.job WHERE status = 'processing'")
    worker.signal(signal.SIGTERM)
    worker.process.wait(PATIENCE)


def a_table_grows(stage: Stage) -> None:
    conn: psycopg.Connection[Any] = stage.keep(psycopg.connect(stage.database))
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    conn.execute("SELECT count(*) FROM holdfast.job")


class _Volume(ExitStack):
    """A small disk, for the user of PostgreSQL."""

    def __init__(self, size: str) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-volume-"))
        self.callback(self.folder.rmdir)
        if os.geteuid() or subprocess.run(self._mount(size), capture_output=True, check=False).returncode:  # noqa: S603
            self.close()
            pytest.skip("this machine lets us mount no volume")
        self.callback(subprocess.run, ["umount", str(self.folder)], check=True)
        shutil.chown(self.folder, "postgres", "postgres")

    def _mount(self, size: str) -> list[str]:
        return ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(self.folder)]


def the_disk_is_full(stage: Stage) -> None:
    folder = stage.keep(_Volume("32m")).folder
    with psycopg.connect(stage.server.url(), autocommit=True) as conn:
        conn.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
        conn.execute("ALTER DATABASE shop SET TABLESPACE small")
    stage.keep(_Closing(lambda: _drop(stage.server)))
    with (folder / "backup").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(8192)):
            pass


def _drop(server: Server) -> None:
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute("DROP DATABASE shop WITH (FORCE)")
        conn.execute("DROP TABLESPACE small")


def connections_are_exhausted(stage: Stage) -> None:
    stage.sql("ALTER DATABASE shop CONNECTION LIMIT 5")


def a_subscription_lags(stage: Stage) -> None:
    (stage.folder / "shop.py").write_text(LEDGER)
    worker = stage.worker()
    # It begins with what was published before, and is said to replay until it has read that.
    stage.wait_for("SELECT 1 FROM holdfast.position WHERE phase IS DISTINCT FROM 'again'")
    worker.stop()
    for invoice in (7, 8, 9):
        stage.sql(f"SELECT holdfast.publish('invoice.paid', '{{\"invoice\": {invoice}}}', key => '{invoice}')")


class _Gone(BaseHTTPRequestHandler):
    """A partner that has moved."""

    def do_POST(self) -> None:
        self.send_response(404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def a_relay_stands_still(stage: Stage) -> None:
    partner = HTTPServer(("127.0.0.1", 0), _Gone)
    stage.keep(partner)
    threading.Thread(target=partner.serve_forever, daemon=True).start()
    stage.keep(_Closing(partner.shutdown))
    (stage.folder / "shop.py").write_text(RELAY.replace("PORT", str(partner.server_port)))
    stage.sql("SELECT holdfast.publish('invoice.paid', '{\"invoice\": 7}', key => '7')")
    stage.worker()
    stage.wait_for("SELECT 1 FROM holdfast.parked")


class _Closing(ExitStack):
    def __init__(self, close: Callable[[], object]) -> None:
        super().__init__()
        self.callback(close)


def the_dashboard_answers_401(stage: Stage) -> None:
    stage.sql("SELECT 1")


def clocks_differ(stage: Stage) -> None:
    stage.variables.update(faketime.environment(-3600))


def a_schedule_does_not_run(stage: Stage) -> None:
    (stage.folder / "shop.py").write_text(NIGHTLY)
    stage.worker().stop()
    stage.sql("UPDATE holdfast.schedule SET paused = true WHERE name = 'nightly'")
    stage.worker()


def prepare(run: Run, name: str) -> None:
    """Run what a section needs in its terminal, where the ports of the page are known."""
    if name == "the_dashboard_answers_401":
        text = (
            "holdfast tokens make ann --role viewer > token\n"
            "holdfast tokens revoke $(cut --characters=4-15 token | head -1)\n"
            "holdfast serve --port 8080 > serve.log 2>&1 &\n"
            "curl --silent --retry 40 --retry-all-errors --retry-delay 1 --fail --output live.json http://127.0.0.1:8080/live\n"
        )
        run.script(Block("symptoms.py", 1, "sh", "", text))
