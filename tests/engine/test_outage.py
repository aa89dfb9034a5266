"""The database goes away and comes back: the worker keeps running, loses nothing, and blames no job."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import pytest

from holdfast import AbortReason, Holdfast, Job
from tests.kit.ledger import Ledger
from tests.kit.pace import ALERT, AT_ONCE, PATIENT
from tests.kit.trouble import Line, closed, refused
from tests.kit.waiting import Stopwatch, after, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tools.postgres import Server


class Load:
    """A worker under a trickle of jobs, and every id that was committed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Holdfast(url)
        self.enqueued: list[int] = []
        self.ran: list[int] = []
        self.reasons: list[Any] = []
        self._feeding = True

        @self.app.job("act", retry=AT_ONCE)
        async def act(job: Job[None], seconds: float) -> None:
            self.ran.append(job.id)
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                self.reasons.append(job.signal.reason)
                raise

        self.act = act

    def feed(self) -> None:
        """Enqueue until stopped, through every outage."""
        conn: psycopg.Connection[Any] | None = None
        while self._feeding:
            try:
                conn = conn or psycopg.connect(self.url, autocommit=True, connect_timeout=5)
                self.enqueued.append(self.app.sync.enqueue(conn, self.act.new(0.01)).id)
                time.sleep(0.004)
            except psycopg.OperationalError:
                if conn is not None:
                    conn.close()
                conn = None
                time.sleep(0.02)
        if conn is not None:
            conn.close()

    @asynccontextmanager
    async def feeding(self) -> AsyncIterator[None]:
        self._feeding = True
        feeder = asyncio.create_task(asyncio.to_thread(self.feed))
        try:
            yield
        finally:
            self._feeding = False
            await feeder

    async def works_again(self, *, within: float = 10) -> None:
        """Return when a job ran that was enqueued only now."""
        with Ledger(self.url) as ledger:
            job = ledger.enqueue_one(self.act.new(0))
            self.enqueued.append(job)
            async with Stopwatch() as watch:
                await until(lambda: job in self.ran)
            assert watch.seconds < within

    async def settled(self) -> None:
        with Ledger(self.url) as ledger:
            await until(lambda: ledger.statuses().keys() == {"completed"})
            done = {job for (job,) in ledger.rows("SELECT id FROM holdfast.job_history")}
            assert set(self.enqueued) <= done, "lost"
            assert ledger.wasted() == []


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restart(own_server: Server, mode: Literal["fast", "immediate"]) -> None:
    load = Load(own_server.url())
    async with load.app.worker(queues={"default": 5}, **PATIENT):
        async with load.feeding():
            await until(lambda: len(load.ran) > 20)
            await asyncio.to_thread(own_server.stop, mode)
            await asyncio.to_thread(own_server.start)
            await load.works_again()
        await load.settled()


async def test_terminated_backends(ledger: Ledger, database: str) -> None:
    load = Load(database)
    async with load.app.worker(queues={"default": 5}, **PATIENT):
        async with load.feeding():
            for _ in range(10):
                ran = len(load.ran)
                await until(lambda: len(load.ran) > ran + 5)  # noqa: B023 - awaited in the same turn
                ledger.terminate_sessions()
            await load.works_again()
        await load.settled()


@pytest.mark.nightly
@pytest.mark.parametrize("seconds", [2, pytest.param(20, marks=pytest.mark.prove)])
@pytest.mark.parametrize("by", ["network", "server"])
async def test_connections_are_refused_for_a_while(
    ledger: Ledger, database: str, server: Server, by: str, seconds: float
) -> None:
    """Jobs that end during an outage are written afterwards, and jobs that were enqueued meanwhile run."""
    async with Line(database) as line:
        load = Load(database)
        if by == "network":
            load.app.url = line.url
        async with load.app.worker(queues={"default": 5}, **PATIENT):
            ends_meanwhile = ledger.enqueue_one(load.act.new(seconds / 2))
            await until(lambda: load.ran == [ends_meanwhile])
            with refused(line) if by == "network" else closed(server, ledger):
                ledger.terminate_sessions()
                jobs = ledger.enqueue(*[load.act.new(0) for _ in range(10)])
                await after(seconds)
            async with Stopwatch() as watch:
                await until(lambda: set(jobs) <= set(load.ran))
            assert watch.seconds < 10
            await until(lambda: ledger.statuses() == {"completed": 11})
        assert len(load.ran) == 11
        assert ledger.wasted() == []


async def test_jobs_held_during_an_outage_are_aborted_and_not_counted(ledger: Ledger, database: str) -> None:
    async with Line(database) as line:
        load = Load(database)
        load.app.url = line.url
        async with load.app.worker(queues={"default": 5}, **ALERT) as worker:
            job = ledger.enqueue_one(load.act.new(60))
            await until(lambda: load.ran == [job])
            ledger.do("UPDATE holdfast.job SET payload = '{\"seconds\": 0}'")
            with refused(line):
                await until(lambda: load.reasons == [AbortReason.error])
            await until(lambda: ledger.status(job) == "completed")
            assert load.ran == [job, job]
            assert worker.counts["job_released"] == 1
        assert ledger.wasted() == []


@pytest.mark.nightly
async def test_a_line_that_is_frozen(ledger: Ledger, database: str) -> None:
    """The server neither refuses nor answers: held jobs are aborted before another worker may claim them."""
    async with Line(database) as line:
        load = Load(database)
        load.app.url = line.url
        async with load.app.worker(queues={"default": 5}, **ALERT):
            job = ledger.enqueue_one(load.act.new(60))
            await until(lambda: load.ran == [job])
            line.freeze()
            try:
                await until(lambda: load.reasons == [AbortReason.error])
                assert ledger.value("SELECT locked_until > clock_timestamp() FROM holdfast.job")
            finally:
                line.thaw()
            line.cut()
            later = ledger.enqueue_one(load.act.new(0))
            await until(lambda: later in load.ran)


@pytest.mark.parametrize("what", ["claim", "finish"])
async def test_an_answer_that_is_lost(ledger: Ledger, database: str, what: str) -> None:
    """The server has done it and the worker does not know: the job neither hangs for a lease nor loses an attempt."""
    async with Line(database) as line:
        load = Load(database)
        load.app.url = line.url
        async with load.app.worker(queues={"default": 5}, **PATIENT):
            await load.works_again()
            await until(lambda: ledger.completed() == 1)
            if what == "claim":
                line.swallow_answer = b"0.00125"
            else:
                line.swallow = b"notify_ended"
            job = ledger.enqueue_one(load.act.new(0.00125))
            await until(lambda: line.swallowed == 1)
            await until(lambda: ledger.status(job) == "completed")
        assert ledger.wasted() == []


@pytest.mark.nightly
async def test_a_server_that_only_reads_for_a_while(
    ledger: Ledger, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As a standby does before it is promoted. Not for longer than a lease: then the attempt would count."""
    load = Load(database)
    name = ledger.value("SELECT current_database()")
    async with load.app.worker(queues={"default": 5}, **PATIENT):
        await load.works_again()
        ledger.do(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        ledger.terminate_sessions()
        await until(
            lambda: any(getattr(record, "error", None) == "ReadOnlySqlTransaction" for record in caplog.records)
        )
        ledger.do(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        ledger.terminate_sessions()
        await load.works_again()
        await load.settled()


async def test_a_statement_that_fails_oddly_stops_no_loop(
    ledger: Ledger, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A privilege taken away, a function gone for a moment: errors that are no lost connection.

    An ending that was refused so may be given up, and the job then runs again when its lease has run out.
    """
    load = Load(database)
    async with load.app.worker(queues={"default": 5}, **ALERT):
        await load.works_again()
        for names, message in {
            ("claim_jobs",): "claim_jobs failed, trying again",
            ("notify_ended", "complete_jobs"): "an ending could not be written alone",
            ("reap_jobs",): "reap_jobs failed, trying again",
            ("renew_leases",): "a lease could not be renewed",
        }.items():
            for name in names:
                ledger.do(f"ALTER FUNCTION holdfast.{name} RENAME TO {name}_away")
            jobs = ledger.enqueue(*[load.act.new(1 if "renew_leases" in names else 0) for _ in range(3)])
            await until(lambda: message in caplog.text)  # noqa: B023 - awaited here
            for name in names:
                ledger.do(f"ALTER FUNCTION holdfast.{name}_away RENAME TO {name}")
            await until(lambda: all(ledger.status(job) == "completed" for job in jobs))  # noqa: B023 - awaited here
