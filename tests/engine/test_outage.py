"""The database goes away and comes back: the worker keeps running, loses nothing, and blames no job."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import pytest

from holdfast import AbortReason, Holdfast, Job
from holdfast.store.schema import migrate
from tests.engine.ledger import Ledger
from tests.engine.pace import AT_ONCE, LEASE, PATIENT, QUICK
from tests.engine.trouble import Line, closed
from tests.engine.waiting import after, until
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


# Real outages in real time: with `make prove`, until they stand any load beside them.
pytestmark = pytest.mark.prove


@pytest.fixture(scope="module")
def own_server(server_version: int) -> Iterator[Server]:
    """A server that may be stopped; crash-safe, as what is enqueued must survive."""
    with Server(server_version, fsync="on", shared_buffers="32MB") as server:
        with psycopg.connect(server.url(), autocommit=True) as conn:
            migrate(conn)
        yield server


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
        """Enqueue until told to stop, through every outage."""
        conn: psycopg.Connection[Any] | None = None
        while self._feeding:
            try:
                conn = conn or psycopg.connect(self.url, autocommit=True, connect_timeout=2)
                self.enqueued.append(self.app.enqueue_sync(conn, self.act.new(0.01)).id)
                time.sleep(0.004)
            except psycopg.OperationalError:
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

    async def works_again(self, seconds: float) -> None:
        """Return when a job ran that was enqueued only now."""
        with Ledger(self.url) as ledger:
            begun = time.monotonic()
            job = ledger.enqueue_one(self.act.new(0))
            self.enqueued.append(job)
            await until(lambda: job in self.ran, seconds)
            assert time.monotonic() - begun < seconds

    async def settled(self) -> None:
        with Ledger(self.url) as ledger:
            await until(lambda: ledger.statuses().keys() == {"completed"}, 20)
            done = {job for (job,) in ledger.rows("SELECT id FROM holdfast.job_history")}
            assert set(self.enqueued) <= done, "lost"
            assert ledger.wasted() == []


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restart(own_server: Server, mode: Literal["fast", "immediate"]) -> None:
    load = Load(own_server.url())
    async with load.app.worker(queues={"default": 5}, **PATIENT):
        async with load.feeding():
            await until(lambda: len(load.ran) > 20)
            await asyncio.to_thread(own_server.stop, mode)
            await asyncio.to_thread(own_server.start)
            await load.works_again(2)
        await load.settled()


async def test_terminated_backends(app: Holdfast, ledger: Ledger, database: str) -> None:
    load = Load(database)
    async with load.app.worker(queues={"default": 5}, **PATIENT):
        async with load.feeding():
            for _ in range(10):
                ran = len(load.ran)
                await until(lambda: len(load.ran) > ran + 5, 3)  # noqa: B023 - awaited in the same turn
                ledger.terminate_sessions()
            await load.works_again(2)
        await load.settled()


async def test_refused_for_longer_than_a_lease(ledger: Ledger, database: str) -> None:
    """What is held is aborted with `error`, released when the database is back, and not counted."""
    async with Line(database) as line:
        load = Load(database)
        load.app.url = line.url
        async with load.app.worker(queues={"default": 5}, **QUICK) as worker:
            long = ledger.enqueue_one(load.act.new(1.0))
            await until(lambda: load.ran == [long])
            await line.refuse()
            await until(lambda: load.reasons == [AbortReason.error], 3)
            waiting = ledger.enqueue(*[load.act.new(0) for _ in range(10)])
            # Not as long as the lease: past it, somebody else may take the job, and then the attempt counts.
            await line.open()
            opened = time.monotonic()
            await until(lambda: set(waiting) <= set(load.ran), 2)
            assert time.monotonic() - opened < 2
            await until(lambda: ledger.statuses() == {"completed": 11})
            assert worker.counts["job_released"] == 1
        assert ledger.wasted() == []


async def test_refused_for_three_leases(ledger: Ledger, database: str) -> None:
    async with Line(database) as line:
        load = Load(database)
        load.app.url = line.url
        async with load.app.worker(queues={"default": 5}, **QUICK):
            await until(lambda: ledger.sessions() >= 3, 3)
            await line.refuse()
            await after(3 * LEASE)
            jobs = ledger.enqueue(*[load.act.new(0) for _ in range(10)])
            await line.open()
            await until(lambda: set(jobs) <= set(load.ran), 2)
            await until(lambda: ledger.statuses() == {"completed": 10})
        assert ledger.wasted() == []


async def test_a_line_that_is_frozen(ledger: Ledger, database: str) -> None:
    """Nobody refuses, nobody answers: what is held is aborted all the same, before another may have it."""
    async with Line(database) as line:
        load = Load(database)
        load.app.url = line.url
        async with load.app.worker(queues={"default": 5}, **QUICK):
            job = ledger.enqueue_one(load.act.new(30))
            await until(lambda: load.ran == [job])
            line.freeze()
            try:
                await until(lambda: load.reasons == [AbortReason.error], LEASE + 0.5)
            finally:
                line.thaw()
            line.cut()
            later = ledger.enqueue_one(load.act.new(0))
            await until(lambda: later in load.ran, 5)


@pytest.mark.parametrize("what", ["claim", "finish"])
async def test_an_answer_that_is_lost(ledger: Ledger, database: str, what: str) -> None:
    """The server has done it and the worker does not know: the job neither hangs for a lease nor loses an attempt."""
    async with Line(database) as line:
        load = Load(database)
        load.app.url = line.url
        async with load.app.worker(queues={"default": 5}, **PATIENT):
            await load.works_again(3)
            await until(lambda: ledger.completed() == 1)
            if what == "claim":
                line.swallow_answer = b"0.00125"
            else:
                line.swallow = b"complete_jobs"
            job = ledger.enqueue_one(load.act.new(0.00125))
            await until(lambda: line.swallowed == 1)
            await until(lambda: ledger.status(job) == "completed", 5)
        assert ledger.wasted() == []


async def test_a_server_that_only_reads_for_a_while(ledger: Ledger, database: str) -> None:
    """As a standby does before it is promoted."""
    load = Load(database)
    name = ledger.value("SELECT current_database()")
    async with load.app.worker(queues={"default": 5}, **QUICK):
        await load.works_again(3)
        ledger.do(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        ledger.terminate_sessions()
        await until(lambda: ledger.sessions() >= 3, 3)
        await after(1)
        ledger.do(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        ledger.terminate_sessions()
        await load.works_again(2.5)
        await load.settled()


async def test_a_statement_that_fails_oddly_stops_no_loop(ledger: Ledger, database: str) -> None:
    """A privilege taken away, a function gone for a moment: errors that are no lost connection.

    An ending that was refused so may be given up, and the job then runs again when its lease has run out.
    """
    load = Load(database)
    async with load.app.worker(queues={"default": 5}, **QUICK):
        await load.works_again(3)
        for name in ("claim_jobs", "complete_jobs", "reap_jobs", "renew_leases"):
            ledger.do(f"ALTER FUNCTION holdfast.{name} RENAME TO {name}_away")
            jobs = ledger.enqueue(*[load.act.new(0) for _ in range(3)])
            await after(0.7)
            ledger.do(f"ALTER FUNCTION holdfast.{name}_away RENAME TO {name}")
            await until(lambda: all(ledger.status(job) == "completed" for job in jobs), 8)  # noqa: B023 - awaited here


async def test_the_database_refuses_for_a_while(ledger: Ledger, database: str, server: Server) -> None:
    load = Load(database)
    async with load.app.worker(queues={"default": 5}, **PATIENT):
        await load.works_again(3)
        with closed(server, ledger):
            ledger.terminate_sessions()
            jobs = ledger.enqueue(*[load.act.new(0) for _ in range(10)])
            await after(2)
        await until(lambda: set(jobs) <= set(load.ran), 2)
        await until(lambda: ledger.statuses() == {"completed": 11})
    assert ledger.wasted() == []


@pytest.mark.prove
async def test_refused_for_twenty_seconds(ledger: Ledger, database: str, server: Server) -> None:
    load = Load(database)
    async with load.app.worker(queues={"default": 5}, **PATIENT):
        await load.works_again(3)
        with closed(server, ledger):
            ledger.terminate_sessions()
            jobs = ledger.enqueue(*[load.act.new(0) for _ in range(10)])
            await after(20)
        await until(lambda: set(jobs) <= set(load.ran), 2)
        await until(lambda: ledger.statuses() == {"completed": 11})
    assert ledger.wasted() == []
