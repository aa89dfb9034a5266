"""Worker Runtime Modes & Outbox Semantics: the worker that keeps going, how it paces itself, and how it stops."""

from __future__ import annotations

import asyncio
import shutil
import signal
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Job, Settings
from holdfast._engine.report.transition import Ticked
from holdfast._engine.runners.loop import Pace
from holdfast._logs.failure import Failure
from tests.kit import commands
from tests.kit.fleet import SOON
from tests.kit.pace import QUICK, ms
from tests.kit.statement import DESIGN, MODES, Document
from tests.kit.waiting import Stopwatch, after, serving, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast import Counts, Tick
    from tests.kit.ledger import Ledger

design = Document(DESIGN)
doc = Document(MODES)
BUSY = Ticked(runner="r", outcome="completed", counts={"done": 1})
IDLE = Ticked(runner="r", outcome="completed")
FAILED = Ticked(runner="r", outcome="failed", failure=Failure("E", "no"))
# Rests so long that a second tick explains itself by nothing else than what is tested.
LONG: dict[str, Any] = QUICK | {"idle_min": ms(60_000), "idle_max": ms(60_000), "error_backoff": ms(60_000)}


def pace(jitter: float = 0.0) -> Pace:
    """At the default settings, with as much of each jitter as said."""
    return Pace(Settings.load({}), jitter=lambda _, limit: limit * jitter)


@doc.states("the first tick comes at once when the worker starts")
async def test_first_tick(app: Holdfast) -> None:
    ticked = asyncio.Event()

    @app.runner("first")
    async def cycle(tick: Tick) -> None:
        ticked.set()

    async with app.worker(tick_runners=("first",), **LONG), asyncio.timeout(SOON):
        await ticked.wait()


@doc.states("a tick that processed work is followed by the next one soon")
async def test_follow_up(app: Holdfast) -> None:
    ticks: list[int] = []

    @app.runner("busy")
    async def cycle(tick: Tick) -> Counts:
        ticks.append(1)
        return {"done": 1}

    async with app.worker(tick_runners=("busy",), busy_delay=ms(1), **LONG):
        await until(lambda: len(ticks) >= 3)


@doc.states("a tick that found nothing is followed after a rest that doubles up to its cap")
def test_idle_backoff() -> None:
    at = pace()
    assert [at.after(IDLE) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]


@doc.states("idle and busy rests are jittered")
def test_jitter() -> None:
    assert (pace(1.0).after(IDLE), pace(1.0).after(BUSY)) == (1.5, 0.75)


@doc.states("work ends the idle backoff")
def test_backoff_is_reset() -> None:
    at = pace()
    assert [at.after(IDLE), at.after(IDLE), at.after(BUSY), at.after(IDLE)] == [1, 2, 0.25, 1]


@doc.states("a failed tick is followed after the error backoff and its own jitter")
def test_error_backoff() -> None:
    assert (pace().after(FAILED), pace(1.0).after(FAILED)) == (30, 32)


@doc.states("a tick that fails does not end the worker: it is made again after the error backoff")
async def test_failed_tick(app: Holdfast) -> None:
    ticks: list[int] = []

    @app.runner("frail")
    async def cycle(tick: Tick) -> None:
        ticks.append(1)
        raise ValueError("no")

    async with app.worker(tick_runners=("frail",), **(LONG | {"error_backoff": ms(5), "error_jitter": ms(0)})):
        await until(lambda: len(ticks) >= 3)


@doc.states("only one tick of a runner runs at a time in a process")
async def test_no_overlap(app: Holdfast) -> None:
    running, limit, ticks = 0, 0, 0

    @app.runner("alone")
    async def cycle(tick: Tick) -> Counts:
        nonlocal running, limit, ticks
        running, ticks = running + 1, ticks + 1
        limit = max(limit, running)
        await asyncio.sleep(0)
        running -= 1
        return {"done": 1}

    async with app.worker(tick_runners=("alone",), **(QUICK | {"busy_delay": ms(0)})):
        await until(lambda: ticks >= 10)
    assert limit == 1


@doc.states("a stop starts no new ticks")
async def test_no_new_ticks(app: Holdfast) -> None:
    ticks: list[int] = []

    @app.runner("ending")
    async def cycle(tick: Tick) -> Counts:
        ticks.append(1)
        return {"done": 1}

    settings: Any = QUICK | {"busy_delay": ms(0), "shutdown_timeout": ms(20_000)}
    async with app.worker(tick_runners=("ending",), **settings) as worker:
        await until(lambda: ticks)
        async with asyncio.timeout(SOON / 2):  # further ticks would use up the shutdown timeout
            await worker.stop()
        made = len(ticks)
        await after(0.05)
        assert len(ticks) == made


@doc.states("a stop closes the application's resources and the worker's connections")
async def test_resources(database: str, ledger: Ledger) -> None:
    story: list[str] = []

    @asynccontextmanager
    async def resources(_: Holdfast) -> AsyncIterator[str]:
        story.append("opened")
        yield "state"
        story.append("closed")

    app = Holdfast(database, lifespan=resources)

    @app.job("resourceful")
    async def act(job: Job[str]) -> None:
        story.append(job.state)

    job = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "completed")
    assert story == ["opened", "state", "closed"]
    await until(lambda: ledger.sessions() == 0)


@pytest.mark.parametrize(
    "number",
    [
        doc.case("SIGTERM stops a worker gracefully", signal.SIGTERM),
        doc.case("SIGINT stops a worker gracefully", signal.SIGINT),
    ],
)
def test_signals(database: str, tmp_path: Path, ledger: Ledger, number: signal.Signals) -> None:
    shutil.copy(Path(__file__).parents[1] / "cli" / "shop.py", tmp_path / "shop.py")
    ledger.do("SELECT holdfast.enqueue('quick', '{\"n\": 1}')")
    with commands.Running("worker", "shop:app", database=database, cwd=tmp_path) as worker:
        worker.wait_for_line("quick")
        worker.signal(number)
        assert worker.ended() == 0
    assert "worker stopped" in worker.messages()
    assert ledger.value("SELECT stop_reason FROM holdfast.worker WHERE pid = %s", worker.process.pid) == "stopped"


@design.states("a notification wakes a worker long before it would poll")
@doc.states("a worker in the background picks up new work with low latency, long before it would poll")
async def test_low_latency(app: Holdfast, ledger: Ledger) -> None:
    ran = asyncio.Event()

    @app.job("latency")
    async def act(job: Job[Any]) -> None:
        ran.set()

    async with app.worker(tick_runners=("outbox",), **LONG) as worker:
        await until(lambda: serving(worker).claimer._recorded.seen)  # it sleeps soundly
        async with Stopwatch() as watch, asyncio.timeout(SOON):
            ledger.enqueue(act.new())
            await ran.wait()
    assert watch.seconds < 0.5


@doc.states("a slow scheduler runner does not hold up the jobs")
async def test_slow_runner(app: Holdfast, ledger: Ledger) -> None:
    began, ran = asyncio.Event(), asyncio.Event()

    @app.runner("sluggish")
    async def cycle(tick: Tick) -> None:
        began.set()
        await tick.signal.wait()

    @app.job("beside")
    async def act(job: Job[Any]) -> None:
        ran.set()

    async with app.worker(**(QUICK | {"shutdown_timeout": ms(10)})):
        async with asyncio.timeout(SOON):
            await began.wait()
            ledger.enqueue(act.new())
            await ran.wait()
