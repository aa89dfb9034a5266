"""Worker Runtime Modes & Outbox Semantics: the worker that keeps going, how it paces itself, and how it stops."""

from __future__ import annotations

import asyncio
import shutil
import signal
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import AbortReason, Holdfast, Job, Settings
from holdfast._engine.report.transition import Ticked
from holdfast._engine.runners.loop import Pace
from holdfast._logs.failure import Failure
from tests.cli import commands
from tests.engine.fleet import SOON
from tests.engine.pace import QUICK, ms
from tests.engine.waiting import after, until
from tests.seeds.statement import MODES, Document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast import Counts, Tick
    from tests.engine.ledger import Ledger

doc = Document(MODES)
BUSY = Ticked(runner="r", outcome="completed", counts={"done": 1})
IDLE = Ticked(runner="r", outcome="completed")
FAILED = Ticked(runner="r", outcome="failed", failure=Failure("E", "no"))
# Rests so long that a second tick explains itself by nothing else than what is tested.
LONG: dict[str, Any] = QUICK | {"idle_min": ms(60_000), "idle_max": ms(60_000), "error_backoff": ms(60_000)}


def pace(jitter: float = 0.0) -> Pace:
    """At the default settings, with as much of each jitter as said."""
    return Pace(Settings.load({}), jitter=lambda _, limit: limit * jitter)


@doc.says("the first tick comes at once when the worker starts")
async def test_first_tick(app: Holdfast) -> None:
    ticked = asyncio.Event()

    @app.runner("first")
    async def cycle(tick: Tick) -> None:
        ticked.set()

    async with app.worker(tick_runners=("first",), **LONG), asyncio.timeout(SOON):
        await ticked.wait()


@doc.says("a tick that processed work is followed by the next one soon")
async def test_follow_up(app: Holdfast) -> None:
    ticks: list[int] = []

    @app.runner("busy")
    async def cycle(tick: Tick) -> Counts:
        ticks.append(1)
        return {"done": 1}

    async with app.worker(tick_runners=("busy",), busy_delay=ms(1), **LONG):
        await until(lambda: len(ticks) >= 3)


@doc.says("a tick that found nothing is followed after a rest that doubles up to its cap")
def test_idle_backoff() -> None:
    at = pace()
    assert [at.after(IDLE) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]


@doc.says("idle and busy rests are jittered")
def test_jitter() -> None:
    assert (pace(1.0).after(IDLE), pace(1.0).after(BUSY)) == (1.5, 0.75)


@doc.says("work ends the idle backoff")
def test_backoff_is_reset() -> None:
    at = pace()
    assert [at.after(IDLE), at.after(IDLE), at.after(BUSY), at.after(IDLE)] == [1, 2, 0.25, 1]


@doc.says("a failed tick is followed after the error backoff and its own jitter")
def test_error_backoff() -> None:
    assert (pace().after(FAILED), pace(1.0).after(FAILED)) == (30, 32)


@doc.says("a tick that fails does not end the worker: it is made again after the error backoff")
async def test_failed_tick(app: Holdfast) -> None:
    ticks: list[int] = []

    @app.runner("frail")
    async def cycle(tick: Tick) -> None:
        ticks.append(1)
        raise ValueError("no")

    async with app.worker(tick_runners=("frail",), **(LONG | {"error_backoff": ms(5), "error_jitter": ms(0)})):
        await until(lambda: len(ticks) >= 3)


@doc.says("only one tick of a runner runs at a time in a process")
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


@doc.says("a stop starts no new ticks")
async def test_no_new_ticks(app: Holdfast) -> None:
    ticks: list[int] = []

    @app.runner("ending")
    async def cycle(tick: Tick) -> Counts:
        ticks.append(1)
        return {"done": 1}

    async with app.worker(tick_runners=("ending",), **(QUICK | {"busy_delay": ms(0)})) as worker:
        await until(lambda: ticks)
        await worker.stop()
        made = len(ticks)
        await after(0.05)
        assert len(ticks) == made


@doc.says("a stop waits for the tick under way, up to the shutdown timeout")
async def test_in_flight_tick(app: Holdfast) -> None:
    began, go = asyncio.Event(), asyncio.Event()
    ended: list[Any] = []

    @app.runner("flying")
    async def cycle(tick: Tick) -> None:
        began.set()
        await go.wait()
        ended.append(tick.signal.reason)

    async with app.worker(tick_runners=("flying",), **(QUICK | {"shutdown_timeout": ms(20_000)})) as worker:
        async with asyncio.timeout(SOON):
            await began.wait()
            stopping = asyncio.create_task(worker.stop())
            await until(lambda: worker.stopping)
            assert not stopping.done()
            go.set()
            await stopping
    assert ended == [None]


@doc.says("a tick that outlasts the shutdown timeout is told to stop")
async def test_shutdown_timeout(app: Holdfast) -> None:
    began = asyncio.Event()
    reasons: list[Any] = []

    @app.runner("endless")
    async def cycle(tick: Tick) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(tick.signal.reason)

    async with app.worker(tick_runners=("endless",), **(QUICK | {"shutdown_timeout": ms(10)})):
        async with asyncio.timeout(SOON):
            await began.wait()
    assert reasons == [AbortReason.shutdown]


@doc.says("a stop closes the application's resources and the worker's connections")
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
    shutil.copy(Path(commands.__file__).with_name("shop.py"), tmp_path / "shop.py")
    ledger.do("SELECT holdfast.enqueue('quick', '{\"n\": 1}')")
    with commands.Running("worker", "shop:app", database=database, cwd=tmp_path) as worker:
        worker.hear("quick")
        worker.signal(number)
        assert worker.ended() == 0
    assert "worker stopped" in worker.messages()
    assert ledger.value("SELECT stop_reason FROM holdfast.worker WHERE pid = %s", worker.process.pid) == "stopped"


@doc.says("a worker in the background picks up new work with low latency, long before it would poll")
async def test_low_latency(app: Holdfast, ledger: Ledger) -> None:
    ran = asyncio.Event()

    @app.job("latency")
    async def act(job: Job[Any]) -> None:
        ran.set()

    async with app.worker(tick_runners=("outbox",), **LONG):
        sleeping = "SELECT count(*) FROM holdfast.sleeper WHERE until > clock_timestamp() AND 'latency' = ANY (kinds)"
        await until(lambda: ledger.value(sleeping))
        ledger.enqueue(act.new())
        async with asyncio.timeout(SOON):
            await ran.wait()


@doc.says("a slow scheduler runner does not hold up the jobs")
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
