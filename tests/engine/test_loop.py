from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast, Job
from holdfast._engine.report.transition import Ticked
from holdfast._engine.runner import Counts, Runner, Tick
from holdfast._engine.runners import builtin
from holdfast._engine.runners.loop import Loop, Pace
from holdfast._logs.failure import Failure
from holdfast._model.errors import AbortReason
from holdfast._model.schedule import Every
from holdfast._model.settings import Settings
from tests.kit.fleet import MS, SOON, background, fast, runs
from tests.kit.statement import MODES, Document
from tests.kit.waiting import after, until

if TYPE_CHECKING:
    from tests.kit.fleet import Connect

modes = Document(MODES)

BUSY = Ticked(runner="r", outcome="completed", counts={"done": 1})
IDLE = Ticked(runner="r", outcome="completed", counts={"done": 0})
FAILED = Ticked(runner="r", outcome="failed", failure=Failure("E", "no"))
LATER = Ticked(runner="r", outcome="skipped", why="not due", next_look=3.0)
MUCH_LATER = Ticked(runner="r", outcome="skipped", why="not due", next_look=86_400.0)


def pace(jitter: float = 0.0) -> Pace:
    """At the default settings, with as much of each jitter as said."""
    return Pace(Settings.load({}), jitter=lambda _, limit: limit * jitter)


def test_soon_after_work_and_later_and_later_when_idle() -> None:
    at = pace()
    assert [at.after(BUSY), at.after(BUSY)] == [0.25, 0.25]
    assert [at.after(IDLE) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert [at.after(BUSY), at.after(IDLE)] == [0.25, 1]


def test_long_after_a_failure() -> None:
    at = pace()
    assert [at.after(IDLE), at.after(IDLE), at.after(FAILED), at.after(IDLE)] == [1, 2, 30, 1]
    assert pace(jitter=1.0).after(FAILED) == 32


def test_every_rest_is_jittered() -> None:
    at = pace(jitter=1.0)
    assert (at.after(BUSY), at.after(IDLE), at.after(MUCH_LATER)) == (0.75, 1.5, 30.5)


def test_work_is_followed_soon_and_a_look_asked_for_is_not_later() -> None:
    slot = Ticked(runner="r", outcome="completed", counts={"done": 1}, next_look=0.0)
    hint = Ticked(runner="r", outcome="completed", counts={"done": 1}, next_look=60.0)
    assert (pace().after(slot), pace().after(hint)) == (0.0, 0.25)


def test_in_time_for_the_next_slot() -> None:
    at = pace(jitter=1.0)
    assert [at.after(LATER), at.after(LATER), at.after(MUCH_LATER)] == [3.0, 3.0, 30.5]


class Steps:
    """A step that tells when it is called, and does what the test says."""

    def __init__(self, *answers: Ticked | BaseException) -> None:
        self._answers = list(answers)
        self.calls = 0
        self.called = asyncio.Condition()

    async def __call__(self) -> Ticked:
        async with self.called:
            self.calls += 1
            self.called.notify_all()
        answer = self._answers.pop(0) if self._answers else IDLE
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def reach(self, calls: int) -> None:
        async with asyncio.timeout(SOON), self.called:
            await self.called.wait_for(lambda: self.calls >= calls)


async def test_first_at_once_then_when_woken_and_it_stops_while_it_rests() -> None:
    steps = Steps()
    loop = Loop("r", steps, Pace(Settings.load({}, idle_min=SOON * 1000 * MS)))
    task = asyncio.create_task(loop.run())
    await steps.reach(1)
    loop.wake()
    await steps.reach(2)
    loop.stop()
    await asyncio.wait_for(task, SOON)
    assert steps.calls == 2


@pytest.mark.parametrize(
    "error", [psycopg.OperationalError("gone"), TimeoutError(), RuntimeError("odd"), psycopg.ProgrammingError("odd")]
)
async def test_a_loop_outlives_whatever_goes_wrong(error: Exception) -> None:
    steps = Steps(error, error, BUSY)
    loop = Loop("r", steps, Pace(fast()))
    task = asyncio.create_task(loop.run())
    await steps.reach(4)
    loop.stop()
    await asyncio.wait_for(task, SOON)


class Cycle:
    """A runner that tells each tick, and waits to be let go if it is slow."""

    def __init__(self, name: str, *, slow: bool = False) -> None:
        self.runner = Runner(name, self.tick)
        self.ticks = 0
        self.go = asyncio.Event()
        self.reason: AbortReason | None = None
        if not slow:
            self.go.set()

    async def tick(self, tick: Tick) -> Counts:
        self.ticks += 1
        try:
            await self.go.wait()
        finally:
            self.reason = tick.signal.reason
        return {"done": 1}


async def test_a_slow_runner_holds_no_other_up(database: str) -> None:
    slow, quick = Cycle("slow", slow=True), Cycle("quick")
    async with background(database, slow.runner, quick.runner):
        await until(lambda: quick.ticks >= 10)
        assert slow.ticks == 1
        slow.go.set()
        await until(lambda: slow.ticks >= 3)


async def test_budgets_bound_one_shot_ticks_alone(database: str) -> None:
    budgets: list[tuple[int | None, bool]] = []

    async def work(tick: Tick) -> Counts:
        budgets.append((tick.budget.items_left, (tick.budget.seconds_left or 0) > 400))
        return {}

    runners = [Runner("default", work), Runner("longer", work, max_runtime=timedelta(hours=1))]
    for runner in runners:
        async with background(database, runner, settings=fast(tick_overall_max=480_000 * MS)):
            await until(lambda: bool(budgets))
        assert budgets[0] == (None, True)
        budgets.clear()


@modes.states("a stop waits for the tick under way, up to the shutdown timeout")
async def test_stopping_waits_for_a_tick_under_way(database: str, connect: Connect) -> None:
    slow = Cycle("slow", slow=True)
    async with background(database, slow.runner) as loops:
        await until(lambda: slow.ticks == 1)
        stopping = asyncio.create_task(loops.stop(SOON))
        await after(0.05)  # a stop that does not wait aborts the tick meanwhile
        assert not stopping.done()
        slow.go.set()
        await asyncio.wait_for(stopping, SOON)
    assert (slow.ticks, slow.reason) == (1, None)
    assert runs(connect()) == [("slow", "completed", {"done": 1}, None)]


@modes.states("a tick that outlasts the shutdown timeout is told to stop")
async def test_stopping_aborts_what_goes_on(database: str, connect: Connect) -> None:
    slow = Cycle("slow", slow=True)
    async with background(database, slow.runner, settings=fast(shutdown_timeout=20 * MS)):
        await until(lambda: slow.ticks == 1)
    assert (slow.ticks, slow.reason) == (1, AbortReason.shutdown)
    assert runs(connect()) == [("slow", "cancelled", None, "shutdown")]


async def test_nothing_is_left_after_stopping(database: str, connect: Connect) -> None:
    before = asyncio.all_tasks()
    cycles = [Cycle(name) for name in "abc"]
    async with background(database, *(cycle.runner for cycle in cycles)):
        await until(lambda: all(cycle.ticks for cycle in cycles))
    assert asyncio.all_tasks() == before
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    conn = connect()
    await until(lambda: conn.execute(sessions).fetchone() == (0,))


async def test_the_database_goes_away_and_comes_back(database: str, connect: Connect) -> None:
    cycle = Cycle("cycle")
    conn = connect()
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    async with background(database, cycle.runner):
        for _ in range(3):
            ticks = cycle.ticks
            await until(lambda ticks=ticks: cycle.ticks > ticks + 2)  # type: ignore[misc]
            conn.execute(f"SELECT pg_terminate_backend(pid) {others}".encode())
        ticks = cycle.ticks
        await until(lambda: cycle.ticks > ticks + 2)


async def test_what_the_worker_did_is_written_again_and_again(
    database: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtin, "FOLDED", 10 * MS)
    done = {"claimed": 0, "job_completed": 0, "job_retried": 0}
    conn = connect()
    async with background(database, names=["outbox"], counts=done):
        done |= {"claimed": 7, "job_completed": 6}
        await until(lambda: len(runs(conn)) == 1)
        done |= {"job_retried": 1}
        await until(lambda: len(runs(conn)) == 2)
    assert [row[:3] for row in runs(conn)] == [
        ("outbox", "completed", {"processed": 7, "completed": 6}),
        ("outbox", "completed", {"retried": 1}),
    ]


async def test_but_no_more_than_once_a_minute_and_when_it_stops(database: str, connect: Connect) -> None:
    asked = 0

    class Counts(dict[str, int]):
        def get(self, name: str, default: Any = None) -> Any:
            nonlocal asked
            asked += name == "claimed"
            return super().get(name, default)

    done = Counts(claimed=0)
    conn = connect()
    quick = Cycle("quick")
    async with background(database, quick.runner, names=["outbox", "quick"], counts=done):
        await until(lambda: asked == 1)
        for claimed in range(1, 6):
            done["claimed"] = claimed
            ticks = quick.ticks
            await until(lambda ticks=ticks: quick.ticks > ticks + 5)  # type: ignore[misc]
    assert asked == 2
    assert [row[:3] for row in runs(conn) if row[0] == "outbox"] == [("outbox", "completed", {"processed": 5})]


async def test_a_worker_runs_its_runners_and_its_periodic_jobs(database: str, connect: Connect) -> None:
    app, conn = Holdfast(database), connect()
    slots: list[object] = []
    sent: list[int] = []

    @app.job("mail")
    async def send(job: Job[None]) -> None:
        sent.append(job.id)

    @app.runner("often", every=Every(50 * MS), singleton=True)
    async def often(tick: Tick) -> Counts:
        slots.append(tick.slot)
        return {}

    app.schedule("mails", send.new(), every=Every(50 * MS))
    async with app.worker(lease=5_000 * MS, heartbeat=500 * MS, reap_interval=1_000 * MS, shutdown_timeout=5_000 * MS):
        await until(lambda: len(slots) >= 3 and len(sent) >= 3)
        # Nothing is claimed while it stops: what a claim under way brought would be given back, and counted.
        conn.execute("UPDATE holdfast.schedule SET paused = true WHERE name = 'mails'")
        await until(lambda: conn.execute("SELECT count(*) FROM holdfast.job").fetchone() == (0,))
    assert (len(set(slots)), len(set(sent))) == (len(slots), len(sent))
    received = [row[:3] for row in runs(conn) if row[0] == "outbox"]
    assert received == [("outbox", "completed", {"processed": len(sent), "completed": len(sent)})]
