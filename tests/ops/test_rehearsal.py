"""Incidents on a live database, by real faults: the cause is named and nothing else, and its command cures it."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pydantic import BaseModel

from holdfast import Holdfast, Job, OrderKey, Retry
from holdfast._engine import worker_report
from holdfast._engine.jobs import run_handlers
from holdfast._ops.caller import RequestRefused
from holdfast._ops.causes import fleet, jobs, relays
from holdfast._ops.service import Service
from holdfast._relay.message import Unavailable
from tests.browser.process import Process
from tests.kit.access import PATIENT
from tests.kit.commands import holdfast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast._ops.responses.fleet import Overview, Problem
    from holdfast._relay.message import Message, Publish

NAMED_SECONDS, GONE_SECONDS = 15.0, 30.0
# As in a fleet, with everything twenty times as fast.
FAST: dict[str, Any] = {
    "lease": timedelta(seconds=6),
    "heartbeat": timedelta(milliseconds=250),
    "reap_interval": timedelta(milliseconds=300),
    "shutdown_timeout": timedelta(milliseconds=200),
    "idle_min": timedelta(milliseconds=5),
    "idle_max": timedelta(milliseconds=50),
}
ONCE = Retry(max_attempts=1)
AT_ONCE = Retry(max_attempts=1000, base=timedelta(milliseconds=20), jitter=timedelta(0))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rules wait for a tenth of their times."""
    monkeypatch.setattr(fleet, "RESTART_SECONDS", 0.8)
    monkeypatch.setattr(fleet, "LOCK_SECONDS", 0.3)
    monkeypatch.setattr(relays, "SINK_SECONDS", 0.4)
    monkeypatch.setattr(jobs, "SLOW_SECONDS", 0.5)
    monkeypatch.setattr(jobs, "STILL_SLOW_SECONDS", 0.2)
    monkeypatch.setattr(jobs, "QUIET_SECONDS", 1.0)
    monkeypatch.setattr(jobs, "MOST_QUIET_SECONDS", 1.0)
    monkeypatch.setattr(jobs, "UNREAD_SECONDS", 1.0)
    monkeypatch.setattr(worker_report, "LONG_SECONDS", 0.4)
    monkeypatch.setattr(worker_report, "WINDOW_SECONDS", 3.0)
    monkeypatch.setattr(worker_report, "STEP_SECONDS", 0.6)
    monkeypatch.setattr(run_handlers, "MISFIT_PAUSE", timedelta(milliseconds=50))


@pytest.fixture
async def service(database: str) -> AsyncIterator[Service]:
    async with Service(database, timeout=PATIENT) as service:
        yield service


@pytest.fixture
async def conn(database: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        yield conn


class Sink:
    """Takes events while it is up."""

    name = "a broker at 127.0.0.1"
    is_up = True

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Publish]:
        async def publish(_: Message) -> None:
            if not self.is_up:
                raise Unavailable("connection refused")

        yield publish


class Shop:
    """Everything that can go wrong, goes wrong while its flag is set."""

    def __init__(self, database: str) -> None:
        self.app = app = Holdfast(database)
        self.sink = Sink()
        self.broken = False
        self.slow = asyncio.Event()
        self.slow.set()

        @app.job("mail.send", queue="mail", retry=ONCE)
        async def send(_: Job[Any], number: int) -> None:
            if self.broken:
                raise TimeoutError("the mail server is away")

        @app.job("bank.book", queue="bank", retry=AT_ONCE)
        async def book(_: Job[Any]) -> None:
            if self.broken:
                raise ConnectionError("the bank is away")

        @app.job("report.build", queue="reports")
        async def build(_: Job[Any]) -> None:
            await self.slow.wait()

        @app.job("report.note", queue="reports")
        async def note(_: Job[Any]) -> None: ...

        self.send, self.book, self.build, self.note = send, book, build, note
        self.paid = app.event("paid", Paid)
        app.relay("out", self.paid, to=self.sink)

    def worker(self, name: str = "web-1") -> Any:
        return self.app.worker(id=name, queues={"mail": 4, "bank": 4, "reports": 2}, **FAST)


class Paid(BaseModel):
    invoice: int


async def look(service: Service) -> Overview | None:
    """Look as a dashboard does. None: the tables are locked."""
    await service.count(small=False)
    return await service.overview(5)


async def named(service: Service, code: str, *, lines: int = 1, fading: str = "") -> Problem:
    """Wait until exactly this cause is named; before it, nothing may be but the one that was just cured."""
    deadline = time.monotonic() + NAMED_SECONDS
    while True:
        overview = await look(service)
        assert overview is not None
        codes = {problem.code for problem in overview.problems}
        assert codes <= {code, fading}, overview.problems
        if codes == {code}:
            assert len(overview.problems) <= lines
            assert not overview.ok
            return overview.problems[0]
        assert time.monotonic() < deadline, f"{code} was not named: {overview}"
        await asyncio.sleep(0.05)


async def gone(service: Service) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while (overview := await look(service)) is None or not overview.ok:
        assert time.monotonic() < deadline, overview and overview.problems
        await asyncio.sleep(0.05)


def run(problem: Problem, database: str) -> None:
    """Run the command that the problem names."""
    program, *words = shlex.split(problem.command or "")
    assert program == "holdfast"
    output = holdfast(*words, database=database)
    assert output.status == 0, output


async def enqueue(conn: psycopg.AsyncConnection[Any], shop: Shop, *new: Any) -> list[int]:
    return [handle.id for handle in await shop.app.enqueue_many(conn, new)]


async def test_all_is_well_and_a_restart_of_seconds_raises_nothing(
    database: str, service: Service, conn: psycopg.AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "RESTART_SECONDS", 8.0)
    shop = Shop(database)
    async with shop.worker():
        await gone(service)
    await enqueue(conn, shop, *(shop.send.new(number) for number in range(40)), shop.note.new())
    began = time.monotonic()
    while time.monotonic() - began < 3:
        overview = await look(service)
        assert overview is not None
        assert (overview.problems, overview.ok, overview.verdict) == ([], False, "No worker is alive")
        await asyncio.sleep(0.2)
    async with shop.worker("web-2"):
        await gone(service)


async def test_no_worker(database: str, service: Service, conn: psycopg.AsyncConnection[Any]) -> None:
    shop = Shop(database)
    await enqueue(conn, shop, *(shop.send.new(number) for number in range(3)), shop.note.new())
    problem = await named(service, "no_worker")
    assert problem.text == "No worker is alive, and 4 jobs are due."
    async with shop.worker():
        await gone(service)


async def test_a_sink_that_is_down(database: str, service: Service, conn: psycopg.AsyncConnection[Any]) -> None:
    shop = Shop(database)
    async with shop.worker():
        await gone(service)
        shop.sink.is_up = False
        await shop.app.publish_many(conn, [shop.paid.new(Paid(invoice=number)) for number in range(9)])
        problem = await named(service, "sink_down")
        assert "The sink of the relay out (a broker at 127.0.0.1) has taken nothing for" in problem.text
        assert "Unavailable: connection refused. Try " in problem.text
        assert problem.text.endswith("; 9 events wait.")
        shop.sink.is_up = True
        await gone(service)


async def test_a_kind_that_nobody_serves(database: str, service: Service, conn: psycopg.AsyncConnection[Any]) -> None:
    shop = Shop(database)
    other = Holdfast(database)

    @other.job("label.print", queue="labels")
    async def label(_: Job[Any]) -> None: ...

    async with shop.worker():
        await gone(service)
        await other.enqueue_many(conn, [label.new() for _ in range(3)])
        problem = await named(service, "unserved_kind")
        assert problem.text == "3 jobs of label.print are due in the queue labels, and no live worker serves it."
        async with other.worker(**FAST):
            await gone(service)


async def test_a_kind_that_fails(database: str, service: Service, conn: psycopg.AsyncConnection[Any]) -> None:
    shop = Shop(database)
    async with shop.worker():
        await gone(service)
        shop.broken = True
        dead = await enqueue(conn, shop, *(shop.send.new(number) for number in range(20)))
        problem = await named(service, "kind_failing")
        assert (
            "jobs of mail.send failed for good within 5 minutes: TimeoutError: the mail server is away." in problem.text
        )
        assert (problem.about, problem.page) == ("mail.send", "dead-letters?kind=mail.send")
        run(problem, database)
        shop.broken = False
        output = holdfast("jobs", "retry", *map(str, dead), database=database)
        assert output.status == 0, output
        run(await named(service, "paused", fading="kind_failing"), database)
        await gone(service)


async def test_a_worker_that_is_frozen(
    database: str, service: Service, conn: psycopg.AsyncConnection[Any], tmp_path: Path
) -> None:
    variables = {
        "HOLDFAST_LEASE_MS": "6000",
        "HOLDFAST_HEARTBEAT_MS": "250",
        "HOLDFAST_IDLE_MAX_MS": "100",
    }
    with Process("worker", "tests.ops.frozen:app", database=database, log=tmp_path / "log", **variables) as frozen:
        await gone(service)
        await conn.execute("SELECT holdfast.enqueue('frozen.wait', '{}') FROM generate_series(1, 3)")
        while True:
            overview = await look(service)
            assert overview is not None
            if overview.depth.processing == 3:
                break
            await asyncio.sleep(0.05)
        os.kill(frozen.process.pid, signal.SIGSTOP)
        try:
            await conn.execute("SELECT holdfast.enqueue('frozen.wait', '{}') FROM generate_series(1, 5)")
            problem = await named(service, "worker_silent")
            assert f"(process {frozen.process.pid} on " in problem.text
            assert "it holds 3 jobs, and 5 due jobs wait behind it." in problem.text
            assert problem.severity == "critical"
        finally:
            os.kill(frozen.process.pid, signal.SIGCONT)
        await gone(service)


async def test_a_queue_that_was_paused(database: str, service: Service, conn: psycopg.AsyncConnection[Any]) -> None:
    shop = Shop(database)
    async with shop.worker():
        await gone(service)
        output = holdfast("queues", "pause", "mail", "--reason", "the bank moves", database=database)
        assert output.status == 0, output
        await enqueue(conn, shop, shop.send.new(1))
        problem = await named(service, "paused")
        assert " (the bank moves); " in problem.text
        assert " by cli:" in problem.text
        run(problem, database)
        await gone(service)


async def test_tables_that_somebody_locks(database: str, service: Service, conn: psycopg.AsyncConnection[Any]) -> None:
    shop = Shop(database)
    async with shop.worker(), await psycopg.AsyncConnection.connect(database, application_name="psql") as other:
        await gone(service)
        await other.execute("LOCK TABLE holdfast.job IN EXCLUSIVE MODE")
        await enqueue_late(database)
        problem = await named(service, "locked")
        assert f"Session {other.info.backend_pid} (psql) of the user postgres" in problem.text
        await other.rollback()
        await gone(service)
        await other.execute("LOCK TABLE holdfast.job IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(RequestRefused, match=f"Session {other.info.backend_pid} \\(psql\\)"):
            await service.overview()
        output = holdfast("status", database=database)
        assert (output.status, f"Session {other.info.backend_pid}" in output.out) == (5, True), output
        assert f"pg_terminate_backend({other.info.backend_pid})" in output.out
        await conn.execute("SELECT pg_terminate_backend(%s)", [other.info.backend_pid])
        await other.close()
        await gone(service)


async def enqueue_late(database: str) -> None:
    """Begin to enqueue a job, and give up when that waits for a lock: as an application with a timeout does."""
    async with await psycopg.AsyncConnection.connect(
        database, autocommit=True, options="-c lock_timeout=400ms"
    ) as conn:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await conn.execute("SELECT holdfast.enqueue('report.note', '{}')")


async def test_long_jobs_that_take_all_slots(
    database: str, service: Service, conn: psycopg.AsyncConnection[Any]
) -> None:
    shop = Shop(database)
    async with shop.worker():
        await gone(service)
        shop.slow.clear()
        await enqueue(conn, shop, *(shop.build.new() for _ in range(2)))
        await asyncio.sleep(0.2)
        await enqueue(conn, shop, *(shop.note.new() for _ in range(5)))
        problem = await named(service, "slow_kind")
        assert "2 jobs of report.build take every slot of the queue reports, the longest for" in problem.text
        assert problem.text.endswith("; 5 due jobs wait behind them.")
        run(problem, database)
        await gone(service)
        shop.slow.set()


async def test_an_order_key_that_a_dead_letter_stopped(
    database: str, service: Service, conn: psycopg.AsyncConnection[Any]
) -> None:
    shop = Shop(database)
    key = OrderKey("account 7", on_failure="block")
    async with shop.worker():
        await gone(service)
        shop.broken = True
        (first,) = await enqueue(conn, shop, shop.send.new(1).options(order_key=key))
        await named(service, "order_stopped")
        shop.broken = False
        await enqueue(conn, shop, *(shop.send.new(number).options(order_key=key) for number in range(5)))
        problem = await named(service, "order_stopped")
        assert (
            f"The order key account 7 is stopped since job {first}, mail.send, failed with TimeoutError" in problem.text
        )
        assert problem.page == f"jobs/{first}"
        while problem.count != 5:
            problem = await named(service, "order_stopped")
        run(problem, database)
        await gone(service)


async def test_a_deploy_with_payloads_that_no_longer_fit(
    database: str, service: Service, conn: psycopg.AsyncConnection[Any]
) -> None:
    shop = Shop(database)
    newer = Holdfast(database)

    @newer.job("mail.send", queue="mail", version=2)
    async def send(_: Job[Any], to: str) -> None: ...

    async with shop.worker():
        await gone(service)
        await newer.enqueue_many(conn, [send.new(str(number)) for number in range(4)])
        problem = await named(service, "payload_unread")
        assert " of mail.send with payload version 2 cannot be read by the worker web-1, which started " in problem.text
        assert " ago and reads version 1; they are given back for another 9m 5" in problem.text
    async with newer.worker(id="web-2", **FAST):
        await gone(service)


async def test_a_storm_of_retries(database: str, service: Service, conn: psycopg.AsyncConnection[Any]) -> None:
    shop = Shop(database)
    async with shop.worker():
        await gone(service)
        shop.broken = True
        await enqueue(conn, shop, *(shop.book.new() for _ in range(3)))
        problem = await named(service, "retry_storm")
        assert "bank.book is retried " in problem.text
        assert problem.text.endswith("times a minute: ConnectionError: the bank is away.")
        shop.broken = False
        await gone(service)


async def test_a_backlog_after_downtime(database: str, service: Service, conn: psycopg.AsyncConnection[Any]) -> None:
    shop = Shop(database)
    await conn.execute(
        "INSERT INTO holdfast.job (created_at, available_at, queue, kind, payload)"
        " SELECT now() - interval '100 s', now() - interval '100 s', 'reports', 'report.build', '{}'"
        " FROM generate_series(1, 1640)"
    )
    await service.count(small=False)
    await conn.execute("UPDATE holdfast.census SET at = at - interval '21 s'")
    shop.slow.clear()
    async with shop.worker():
        await conn.execute(
            "DELETE FROM holdfast.job WHERE id IN (SELECT id FROM holdfast.job WHERE status = 'pending' LIMIT 600)"
        )
        problem = await named(service, "catching_up")
        assert "The queue reports is catching up: 1,0" in problem.text
        assert "so it is done in about " in problem.text
        shop.slow.set()
        await gone(service)
