"""`max_runtime` ends an attempt in time, whatever the pace of the heartbeat, and says which limit it was."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import AbortReason, Holdfast, Item, Job, Lease, Retry
from holdfast._drivers import run_sync
from holdfast._store.worker import served_runtime
from tests.engine import cpu
from tests.kit.pace import PATIENT, ms
from tests.kit.statement import RULES, Document
from tests.kit.waiting import Stopwatch, until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

rules = Document(RULES)

# A heartbeat so rare that it explains nothing.
RARE: dict[str, Any] = PATIENT | {"lease": ms(600_000), "heartbeat": ms(100_000)}
ONCE = Retry(max_attempts=1)
SECOND = ms(1000)


def sleep_long(job: Job[None]) -> None:
    """For a process: it looks at nothing and is killed."""
    time.sleep(60)


async def ended(app: Holdfast, ledger: Ledger, job: int) -> float:
    """Run the job to its end; return for how long it ran."""
    async with app.worker(**RARE):
        await until(lambda: ledger.status(job) == "processing")
        async with Stopwatch() as watch:
            await until(lambda: ledger.status(job) == "failed")
        return watch.seconds


@rules.states("RULE-020-051: the limit can be given per kind")
@pytest.mark.parametrize("where", ["async", "thread", "batch"])
async def test_an_attempt_ends_within_a_tenth_of_a_second_of_its_limit(
    app: Holdfast, ledger: Ledger, where: str
) -> None:
    took: list[tuple[AbortReason | None, float]] = []

    async def sleep(job: Job[None]) -> None:
        async with Stopwatch() as watch:
            began = time.monotonic()
            try:
                await asyncio.sleep(60)
            finally:
                assert time.monotonic() - began > 0.99
                took.append((job.signal.reason, watch.seconds))

    new: Any
    if where == "async":
        new = app.job("long", retry=ONCE, max_runtime=SECOND)(sleep).new()
    elif where == "thread":

        @app.job("long", retry=ONCE, max_runtime=SECOND)
        def wait(job: Job[None]) -> None:
            began = time.monotonic()
            job.signal.wait_in_thread(60)
            took.append((job.signal.reason, time.monotonic() - began))

        new = wait.new()
    else:

        @app.batch("long", retry=ONCE, max_runtime=SECOND)
        async def batch(items: list[Item[dict[str, int]]]) -> None:
            await sleep(items[0].job)

        new = batch.new({"number": 1})
    job = ledger.enqueue_one(new)
    await ended(app, ledger, job)
    ((reason, seconds),) = took
    assert reason is AbortReason.timeout
    assert seconds < 1.1
    assert ledger.job(job).error == "the job ran longer than its max_runtime of 1 s"


async def test_a_process_is_killed_in_time(app: Holdfast, ledger: Ledger) -> None:
    kind = app.job("long", retry=ONCE, max_runtime=SECOND, executor="process")(sleep_long)
    job = ledger.enqueue_one(kind.new())
    await ended(app, ledger, job)
    assert ledger.job(job).error == "the job ran longer than its max_runtime of 1 s"


async def test_the_first_of_several_limits_is_kept_though_a_longer_one_began_before(
    app: Holdfast, ledger: Ledger
) -> None:
    took: dict[str, float] = {}

    async def sleep(job: Job[None]) -> None:
        async with Stopwatch() as watch:
            try:
                await asyncio.sleep(60)
            finally:
                took[job.kind] = watch.seconds

    long, middle, short = (
        ledger.enqueue_one(app.job(name, retry=ONCE, max_runtime=ms(limit))(sleep).new())
        for name, limit in (("long", 3000), ("middle", 1600), ("short", 800))
    )
    async with app.worker(**RARE):
        await until(lambda: [ledger.status(job) for job in (long, middle, short)] == ["failed"] * 3)
    assert took["short"] < 0.9
    assert took["middle"] < 1.7
    assert took["long"] < 3.1


async def test_the_default_is_named_as_one(app: Holdfast, ledger: Ledger) -> None:
    @app.job("long", retry=ONCE, lease=Lease(seconds=0.5))
    async def long(job: Job[None]) -> None:
        await asyncio.sleep(60)

    job = ledger.enqueue_one(long.new())
    await ended(app, ledger, job)
    assert ledger.job(job).error == "the job ran longer than its max_runtime of 1.5 s (three leases, the default)"


async def test_workers_tell_how_long_a_job_may_run(app: Holdfast, ledger: Ledger) -> None:
    app.job("own", max_runtime=timedelta(minutes=10))(nothing)
    app.job("default", lease=Lease(seconds=20))(nothing)
    ledger.conn.execute("INSERT INTO holdfast.queue (name, lease_ms) VALUES ('brief', 5000)")
    asked = [("own", "default"), ("own", "brief"), ("default", "default"), ("default", "brief"), ("other", "default")]
    async with app.worker(**PATIENT):
        found = [run_sync(ledger.conn, served_runtime(*each)) for each in asked]
    assert found == [(600_000, False), (600_000, False), (60_000, True), (15_000, True), None]


async def nothing(job: Job[None]) -> None: ...


@pytest.mark.parametrize("where", ["async", "thread", "batch"])
async def test_a_handler_can_stop_before_its_limit(app: Holdfast, ledger: Ledger, where: str) -> None:
    """The timeout of asyncio interrupts what waits; a thread looks. Neither is ended by the limit."""
    left: list[float] = []

    async def stop_in_time(job: Job[None]) -> str:
        left.append(job.signal.seconds_left)
        try:
            async with asyncio.timeout(job.signal.seconds_left - 1.5):
                await asyncio.sleep(60)
        except TimeoutError:
            assert 0 < job.signal.seconds_left <= 1.5
            return "in time"
        return "too late"

    new: Any
    if where == "async":
        new = app.job("work", retry=ONCE, max_runtime=2)(stop_in_time).new
    elif where == "thread":

        @app.job("work", retry=ONCE, max_runtime=2)
        def work(job: Job[None]) -> str:
            left.append(job.signal.seconds_left)
            while job.signal.seconds_left > 1.5:
                job.signal.wait_in_thread(0.01)
            return "in time"

        new = work.new
    else:

        @app.batch("work", retry=ONCE, max_runtime=2)
        async def works(items: list[Item[dict[str, int]]]) -> list[str]:
            assert len({item.job.signal.deadline for item in items}) == 1
            return [await stop_in_time(items[0].job)] * len(items)

        new = lambda: works.new({})  # noqa: E731 - like the others
    jobs = ledger.enqueue(new(), *([new()] if where == "batch" else []))
    async with app.worker(**RARE):
        await until(lambda: ledger.completed() == len(jobs))
    assert [ledger.job(job).result for job in jobs] == ["in time"] * len(jobs)
    assert 1.5 < left[0] <= 2


async def test_a_process_knows_how_long_it_may_run(
    database: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database)
    job = ledger.enqueue_one(cpu.time_left.new())
    async with cpu.app.worker(queues={"default": 1}, **RARE):
        await until(lambda: ledger.status(job) == "completed")
    assert 50 < ledger.job(job).result <= 60


def test_without_a_worker_there_is_no_limit() -> None:
    assert Job(id=1, kind="k", state=None).signal.seconds_left == math.inf
