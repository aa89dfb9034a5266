from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._engine.runner import Counts, Runner, Tick
from holdfast._engine.runners.schedules import singleton
from holdfast._engine.runners.ticker import Limits
from holdfast._model.errors import AbortReason
from holdfast._model.schedule import Every
from holdfast._store.schedule import take_singleton
from tests.kit.fleet import SOON, crew, make_due, runs, schedule
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.fleet import Connect

PLENTY = Limits(None, SOON)
HOLDER = (
    "SELECT pid, state, backend_xmin::text, backend_xid::text FROM pg_stat_activity WHERE pid IN "
    "(SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = "
    "(SELECT oid FROM pg_database WHERE datname = current_database()))"
)


class Waiting:
    """A singleton that says when it runs, and goes on until it is let go."""

    def __init__(self, **options: Any) -> None:
        self.runner = Runner("billing", self.tick, singleton=True, **options)
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.reason: AbortReason | None = None

    async def tick(self, tick: Tick) -> Counts:
        self.started.set()
        try:
            await self.go.wait()
        finally:
            self.reason = tick.signal.reason
        return {"billed": 1}


def holder(conn: psycopg.Connection[Any]) -> tuple[Any, ...]:
    row = conn.execute(HOLDER.encode()).fetchone()
    assert row is not None
    return tuple(row)


async def test_one_replica_runs_and_the_other_skips(database: str, connect: Connect) -> None:
    one, two = Waiting(), Waiting()
    conn = connect()
    async with crew(database, one.runner) as here, crew(database, two.runner) as there:
        running = asyncio.create_task(here.ticker.tick(one.runner, PLENTY))
        await asyncio.wait_for(one.started.wait(), SOON)
        skipped = await there.ticker.tick(two.runner, PLENTY)
        assert (skipped.outcome, skipped.why, two.started.is_set()) == ("skipped", "lock held elsewhere", False)
        one.go.set()
        two.go.set()
        assert (await running).counts == {"billed": 1}
        assert (await there.ticker.tick(two.runner, PLENTY)).outcome == "completed"
    assert [row[:2] for row in runs(conn)] == [("billing", "completed")] * 2


async def test_the_key_is_the_documented_one(database: str, connect: Connect) -> None:
    conn = connect()
    waiting = Waiting()
    waiting.go.set()
    async with crew(database, waiting.runner) as at:
        with conn.transaction():
            key = "SELECT pg_advisory_xact_lock(hashtextextended('worker:scheduler:billing', 0))"
            conn.execute(key)
            assert (await at.ticker.tick(waiting.runner, PLENTY)).why == "lock held elsewhere"
        assert (await at.ticker.tick(waiting.runner, PLENTY)).outcome == "completed"


async def test_the_lock_holds_no_snapshot_and_no_transaction_id(database: str, connect: Connect) -> None:
    conn = connect()
    conn.execute("CREATE TABLE dead AS SELECT generate_series(1, 1000)")
    async with singleton(database, "billing", lambda: None, seconds=SOON) as held:
        assert held
        assert holder(conn)[1:] == ("idle in transaction", None, None)
        assert not run_sync(conn, take_singleton("billing"))
        # So vacuum takes away what died while it was held.
        conn.execute("DELETE FROM dead")
        conn.execute("VACUUM dead")
        assert conn.execute("SELECT pg_relation_size('dead')").fetchone() == (0,)
    assert run_sync(conn, take_singleton("billing"))


async def test_the_servers_timeouts_do_not_end_it(database: str, connect: Connect) -> None:
    lost = asyncio.Event()
    impatient = f"{database}?options=-c%20idle_in_transaction_session_timeout%3D2500"
    async with singleton(impatient, "billing", lost.set, seconds=SOON) as held:
        assert held
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lost.wait(), 4)
        assert not run_sync(connect(), take_singleton("billing"))


async def test_a_runner_whose_lock_is_gone_is_cancelled(database: str, connect: Connect) -> None:
    conn = connect()
    waiting = Waiting()
    async with crew(database, waiting.runner) as at:
        running = asyncio.create_task(at.ticker.tick(waiting.runner, PLENTY))
        await asyncio.wait_for(waiting.started.wait(), SOON)
        conn.execute("SELECT pg_terminate_backend(%s)", [holder(conn)[0]])
        ticked = await asyncio.wait_for(running, SOON)
    assert (ticked.outcome, waiting.reason) == ("cancelled", AbortReason.error)
    assert runs(conn) == [("billing", "cancelled", None, "error")]


async def test_with_a_schedule_the_slot_is_given_back_when_the_lock_is_gone(database: str, connect: Connect) -> None:
    conn = connect()
    waiting = Waiting(every=Every(timedelta(hours=1)), at_start=False)
    async with crew(database, waiting.runner) as at:
        assert (await at.ticker.tick(waiting.runner, PLENTY)).why == "not due"
        make_due(conn, "billing")
        (due,) = schedule(conn, "billing", "next_at")
        running = asyncio.create_task(at.ticker.tick(waiting.runner, PLENTY))
        await asyncio.wait_for(waiting.started.wait(), SOON)
        conn.execute("SELECT pg_terminate_backend(%s)", [holder(conn)[0]])
        assert (await asyncio.wait_for(running, SOON)).outcome == "cancelled"
        assert schedule(conn, "billing", "slot_at, attempt, locked_until") == (due, 0, None)
        waiting.go.set()
        assert (await at.ticker.tick(waiting.runner, PLENTY)).counts == {"billed": 1}
        assert schedule(conn, "billing", "slot_at, last_at") == (None, due)


async def test_with_a_schedule_the_slot_waits_for_the_holder_of_the_lock(database: str, connect: Connect) -> None:
    conn, other = connect(), connect()
    waiting = Waiting(every=Every(timedelta(hours=1)), at_start=False)
    waiting.go.set()
    async with crew(database, waiting.runner) as at:
        await at.ticker.tick(waiting.runner, PLENTY)
        make_due(conn, "billing")
        with other.transaction():
            other.execute("SELECT pg_advisory_xact_lock(hashtextextended('worker:scheduler:billing', 0))")
            assert (await at.ticker.tick(waiting.runner, PLENTY)).why == "lock held elsewhere"
            assert schedule(conn, "billing", "locked_by, slot_at IS NOT NULL, attempt") == (None, True, 0)
        assert (await at.ticker.tick(waiting.runner, PLENTY)).counts == {"billed": 1}
    assert runs(conn) == [("billing", "completed", {"billed": 1}, None)]


async def test_no_connection_is_kept_when_nothing_runs(database: str, connect: Connect) -> None:
    conn = connect()
    waiting = Waiting()
    waiting.go.set()
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    async with crew(database, waiting.runner) as at:
        await at.ticker.tick(waiting.runner, PLENTY)
        await until(lambda: conn.execute(count).fetchone() == (1,))


async def test_a_database_that_does_not_answer_is_an_error_not_a_wait(database: str) -> None:
    with pytest.raises(psycopg.OperationalError):
        async with singleton(f"{database}_gone", "billing", lambda: None, seconds=SOON):
            pytest.fail("held a lock in a database that is not there")
