from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._engine.runner import Counts, Runner, Tick
from holdfast._engine.runners.ticker import Limits
from holdfast._model.errors import AbortReason
from holdfast._model.schedule import Every
from holdfast._store.schedule import claim_slot, look_at_schedule, remove_schedule
from tests.engine.replica import SHUT, TABLES
from tests.kit.fleet import MS, SOON, background, crew, fast, make_due, runs, schedule
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import psycopg

    from tests.kit.fleet import Connect

PLENTY = Limits(None, SOON)
HOUR = Every(timedelta(hours=1))
MINUTE = timedelta(minutes=1)
ROOT = Path(__file__).parents[2]


class Cycle:
    """A runner with a schedule that says when it runs, and goes on until it is let go."""

    def __init__(self, *, slow: bool = False, fails: bool = False) -> None:
        self.runner = Runner("bill", self.tick, every=HOUR, at_start=False)
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.ticks: list[Tick] = []
        self.fails = fails
        if not slow:
            self.go.set()

    async def tick(self, tick: Tick) -> Counts:
        self.ticks.append(tick)
        self.started.set()
        await self.go.wait()
        if self.fails:
            raise ValueError("no luck")
        return {"billed": 1}


async def test_a_slot_is_held_longer_than_its_lease(database: str, connect: Connect) -> None:
    cycle, other = Cycle(slow=True), Cycle()
    conn = connect()
    settings = fast(lease=2_000 * MS, heartbeat=300 * MS)
    async with crew(database, cycle.runner, settings=settings) as here, crew(database, other.runner) as there:
        await here.ticker.tick(cycle.runner, PLENTY)
        make_due(conn, "bill")
        running = asyncio.create_task(here.ticker.tick(cycle.runner, PLENTY))
        await asyncio.wait_for(cycle.started.wait(), SOON)
        (held,) = schedule(conn, "bill", "locked_until")
        leases_later = held + 2 * settings.lease
        await until(lambda: schedule(conn, "bill", "locked_until")[0] > leases_later)
        assert (await there.ticker.tick(other.runner, PLENTY)).why == "not due"
        cycle.go.set()
        assert (await running).outcome == "completed"
    assert (len(cycle.ticks), other.ticks) == (1, [])


async def test_a_slot_that_was_taken_away_aborts_its_tick(database: str, connect: Connect) -> None:
    cycle = Cycle(slow=True)
    conn = connect()
    async with crew(database, cycle.runner) as at:
        await at.ticker.tick(cycle.runner, PLENTY)
        make_due(conn, "bill")
        running = asyncio.create_task(at.ticker.tick(cycle.runner, PLENTY))
        await asyncio.wait_for(cycle.started.wait(), SOON)
        conn.execute("UPDATE holdfast.schedule SET locked_until = clock_timestamp() - interval '1 second'")
        look = run_sync(conn, look_at_schedule("bill"))
        assert look is not None
        assert run_sync(conn, claim_slot("bill", look, worker=999, lease=timedelta(minutes=1))) is not None
        ticked = await asyncio.wait_for(running, SOON)
    assert (ticked.outcome, cycle.ticks[0].signal.reason) == ("lost", AbortReason.taken_by_another_worker)
    assert schedule(conn, "bill", "locked_by, attempt") == (999, 2)
    assert runs(conn) == [("bill", "lost", None, "lost"), ("bill", None, None, None)]


async def test_a_tick_that_fails_has_had_its_slot(database: str, connect: Connect) -> None:
    cycle = Cycle(fails=True)
    conn = connect()
    async with crew(database, cycle.runner) as at:
        await at.ticker.tick(cycle.runner, PLENTY)
        make_due(conn, "bill")
        assert (await at.ticker.tick(cycle.runner, PLENTY)).outcome == "failed"
        assert (await at.ticker.tick(cycle.runner, PLENTY)).why == "not due"
    assert runs(conn) == [("bill", "failed", None, "ValueError")]
    assert schedule(conn, "bill", "slot_at, locked_until") == (None, None)


async def test_a_schedule_that_was_removed_comes_back_while_the_code_declares_it(
    database: str, connect: Connect
) -> None:
    cycle = Cycle()
    conn = connect()
    async with crew(database, cycle.runner) as at:
        await at.ticker.tick(cycle.runner, PLENTY)
        run_sync(conn, remove_schedule("bill"))
        for _ in range(3):
            await at.ticker.tick(cycle.runner, PLENTY)
        assert schedule(conn, "bill", "next_at IS NOT NULL") == (True,)


async def test_a_loop_wakes_for_each_slot_in_time(database: str, connect: Connect) -> None:
    """In real time: slots of 60 ms, the idle backoff at a minute, and no slot twice."""
    slots: list[datetime | None] = []

    async def work(tick: Tick) -> Counts:
        slots.append(tick.slot)
        return {}

    runner = Runner("often", work, every=Every(timedelta(milliseconds=60)))
    settings = fast(idle_min=60_000 * MS, idle_max=60_000 * MS)
    async with background(database, runner, settings=settings):
        await until(lambda: len(slots) >= 10)
    assert sorted({slot for slot in slots if slot is not None}) == slots


async def test_a_text_that_is_no_schedule_is_an_error_and_not_the_end(database: str, connect: Connect) -> None:
    cycle = Cycle()
    conn = connect()
    async with background(database, cycle.runner):
        await until(lambda: conn.execute("SELECT FROM holdfast.schedule WHERE next_at IS NOT NULL").rowcount == 1)
        conn.execute("UPDATE holdfast.schedule SET schedule = 'now and then', next_at = now()")
        conn.execute("UPDATE holdfast.schedule SET schedule = %s, next_at = now()", [HOUR.text])
        await asyncio.wait_for(cycle.started.wait(), SOON)


@contextmanager
def replica(url: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.engine.replica", url, name]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["src", "."])}
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:  # noqa: S603 - our own program
        try:
            yield process
        finally:
            process.kill()


def bills(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT slot, replica, attempt, ended FROM bill ORDER BY slot, attempt").fetchall()


@pytest.mark.nightly
async def test_three_replicas_run_a_hundred_slots_once_each_though_holders_are_killed(
    database: str, connect: Connect
) -> None:
    conn, gatekeeper = connect(), connect()
    conn.execute(TABLES.encode())
    killed_at = (30, 60)
    names = iter(f"r{number}" for number in range(3 + len(killed_at)))
    with ExitStack() as stack:
        alive = {name: stack.enter_context(replica(database, name)) for name in (next(names), next(names), next(names))}
        await until(lambda: conn.execute("SELECT count(*) FROM up").fetchone() == (3,), 60)
        for number in range(100):
            if number not in killed_at:
                make_due(conn, "bill")
            else:
                with gatekeeper.transaction():
                    gatekeeper.execute(SHUT)
                    make_due(conn, "bill")
                    await until(lambda: holders(conn, alive), 30)
                    (holder,) = holders(conn, alive)
                    alive[holder].send_signal(signal.SIGKILL)
                    alive.pop(holder).wait()
                name = next(names)
                alive[name] = stack.enter_context(replica(database, name))
            await until(lambda number=number: ended(conn) == number + 1, 30)  # type: ignore[misc]
        await until(lambda: conn.execute("SELECT count(*) FROM up").fetchone() == (3 + len(killed_at),), 60)
        for process in alive.values():
            process.terminate()
        assert [process.wait(30) for process in alive.values()] == [0, 0, 0]
    rows = bills(conn)
    again = {slot for slot, starts in Counter(row[0] for row in rows).items() if starts > 1}
    assert len({row[0] for row in rows}) == 100
    assert len(again) == len(killed_at)
    for slot in again:
        (first, second) = [row for row in rows if row[0] == slot]
        assert (first[2:], second[2:]) == ((1, False), (2, True))
        assert first[1] != second[1]
    assert len(rows) == 100 + len(killed_at)
    assert Counter(row[1] for row in runs(conn)) == {"completed": 100, "lost": len(killed_at)}


def holders(conn: psycopg.Connection[Any], among: Iterable[str]) -> list[str]:
    """Which of these replicas have begun a slot and not ended it."""
    return [row[1] for row in bills(conn) if not row[3] and row[1] in among]


def ended(conn: psycopg.Connection[Any]) -> int:
    """How many slots are over, by the schedule's own row too."""
    done = sum(row[3] for row in bills(conn))
    return done if schedule(conn, "bill", "slot_at IS NULL") == (True,) else -1
