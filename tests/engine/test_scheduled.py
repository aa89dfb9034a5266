"""A scheduled job runs in time, whatever its worker is doing when it falls due."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast, Job, Reschedule
from tests.kit.pace import MINUTE, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

DELAY = ms(1_500)
LATE = "SELECT extract(epoch FROM finished_at - available_at) FROM holdfast.job_history WHERE id = %s"
APART = "SELECT count(*) FROM holdfast.job WHERE later"
ASLEEP = "SELECT count(DISTINCT worker_id) FROM holdfast.sleeper WHERE until > now()"


def kind(app: Holdfast, name: str) -> Any:
    @app.job(name)
    async def act(job: Job[None]) -> None: ...

    return act


async def in_time(ledger: Ledger, job: int) -> None:
    await until(lambda: ledger.status(job) == "completed")
    assert ledger.value(LATE, job) < 5, "polling would take a minute"


async def test_by_a_worker_that_sleeps(app: Holdfast, ledger: Ledger) -> None:
    act = kind(app, "act")
    async with app.worker(**MINUTE):
        await until(lambda: ledger.value(ASLEEP) == 1)
        job = ledger.enqueue_one(act.new().options(delay=DELAY))
        assert ledger.value(APART) == 1
        await in_time(ledger, job)


async def test_by_a_worker_that_starts_while_it_waits(app: Holdfast, ledger: Ledger) -> None:
    act = kind(app, "act")
    job = ledger.enqueue_one(act.new().options(delay=DELAY))
    async with app.worker(**MINUTE):
        await in_time(ledger, job)


async def test_by_a_worker_that_is_busy(app: Holdfast, ledger: Ledger) -> None:
    act = kind(app, "act")

    @app.job("busy")
    async def busy(job: Job[None]) -> None:
        await asyncio.sleep(0.02)

    job = ledger.enqueue_one(act.new().options(delay=DELAY))
    async with app.worker(**MINUTE):
        while ledger.status(job) != "completed":
            ledger.enqueue(*[busy.new() for _ in range(20)])
            await asyncio.sleep(0.05)
    await in_time(ledger, job)


async def test_beside_a_worker_of_other_kinds_that_is_busy(app: Holdfast, ledger: Ledger) -> None:
    """That one promotes it, and cannot run it."""
    act, others = kind(app, "act"), Holdfast(ledger.url)
    other = kind(others, "other")
    async with app.worker(id="sleeps", **MINUTE), others.worker(id="works", **MINUTE):
        await until(lambda: ledger.value(ASLEEP) == 2)
        job = ledger.enqueue_one(act.new().options(delay=DELAY))
        while ledger.status(job) != "completed":
            ledger.enqueue(*[other.new() for _ in range(5)])
            await asyncio.sleep(0.01)
    await in_time(ledger, job)


async def test_again_after_it_was_put_off(app: Holdfast, ledger: Ledger) -> None:
    turns = 0

    @app.job("act")
    async def act(job: Job[None]) -> object:
        nonlocal turns
        turns += 1
        return Reschedule(DELAY) if turns == 1 else None

    async with app.worker(**MINUTE):
        await in_time(ledger, ledger.enqueue_one(act.new()))
    assert turns == 2


async def test_at_the_moment_that_its_handler_named(app: Holdfast, ledger: Ledger) -> None:
    moment = datetime.now(UTC) + DELAY
    turns: list[int] = []

    @app.job("act")
    async def act(job: Job[None]) -> object:
        turns.append(job.attempt)
        return Reschedule(moment) if len(turns) == 1 else None

    async with app.worker(**MINUTE):
        job = ledger.enqueue_one(act.new())
        await in_time(ledger, job)
    assert ledger.value("SELECT available_at FROM holdfast.job_history WHERE id = %s", job) == moment
    assert turns == [1, 1], "no attempt was counted"
