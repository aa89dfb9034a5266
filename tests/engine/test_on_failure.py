"""Every way in which a worker makes a dead letter writes the job that was given for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pytest

from holdfast import Continue, Fail, Holdfast, Item, Job
from holdfast._engine import worker
from tests.engine import zombie_app
from tests.engine.zombie import Process
from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast import NewJob
    from tests.kit.ledger import Ledger

ONCE = replace(AT_ONCE, max_attempts=1)
Made: TypeAlias = "NewJob[Any]"


def raises(app: Holdfast) -> Made:
    @app.job("k", retry=AT_ONCE)
    async def k(job: Job[None]) -> None:
        raise ValueError(job.attempt)

    return k.new()


def fails(app: Holdfast) -> Made:
    @app.job("k", retry=AT_ONCE)
    def k(job: Job[None]) -> Fail:
        return Fail("no")

    return k.new()


def never(app: Holdfast) -> Made:
    @app.job("k", retry=replace(AT_ONCE, never=(ValueError,)))
    async def k(job: Job[None]) -> None:
        raise ValueError

    return k.new()


def odd_result(app: Holdfast) -> Made:
    @app.job("k")
    async def k(job: Job[None]) -> Any:
        return {1, 2}

    return k.new()


def follows_a_duplicate(app: Holdfast) -> Made:
    """The database refuses its outcome, and takes a dead letter in its place."""

    @app.job("k", queue="never")
    async def taken(job: Job[None]) -> None: ...

    @app.job("first")
    async def first(job: Job[None]) -> Continue[None]:
        return Continue(taken.new().options(unique="one"))

    return first.new()


def too_long(app: Holdfast) -> Made:
    @app.job("k", retry=ONCE, max_runtime=ms(50))
    async def k(job: Job[None]) -> None:
        await asyncio.sleep(60)

    return k.new()


def unreadable(app: Holdfast) -> Made:
    @app.job("k")
    async def k(job: Job[None], number: int) -> None: ...

    return replace(k.new(7), payload='{"number":"seven"}')


def in_a_batch(app: Holdfast) -> Made:
    @app.batch("k")
    async def k(items: list[Item[dict[str, int]]]) -> list[Fail]:
        return [Fail("no") for _ in items]

    return k.new({"number": 7})


def story(app: Holdfast) -> Made:
    def charge() -> int:
        raise Fail("no")

    @app.job("k")
    async def k(job: Job[None]) -> None:
        await job.step("charge", charge)

    return k.new()


WAYS = (raises, fails, never, odd_result, follows_a_duplicate, too_long, unreadable, in_a_batch, story)


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_writes_it_once(
    app: Holdfast, ledger: Ledger, way: Callable[[Holdfast], NewJob[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "DEPLOY_GRACE", 0.0)

    @app.job("report")
    async def report(job: Job[None], of: int) -> list[object]:
        [failure] = job.blockers
        return [of, failure.chain_id, failure.status, failure.error_code]

    made = way(app)
    if way is follows_a_duplicate:
        ledger.enqueue(cast("Any", app.kinds["k"]).new().options(unique="one"))
    dead = ledger.enqueue_one(made.options(on_failure=report.new(7)))
    if way is unreadable:
        ledger.do("UPDATE holdfast.job SET created_at = now() - interval '1 hour'")
    async with app.worker(queues={"default": 3}, **QUICK):
        await until(lambda: ledger.completed() == 1)
    found = ledger.job(dead)
    assert found.status == "failed"
    [result] = ledger.rows("SELECT result FROM holdfast.job_history WHERE kind = 'report'")
    assert result == ([7, dead, "failed", found.error_code],)


async def test_a_failed_blocker_fails_the_waiter_and_both_report(app: Holdfast, ledger: Ledger) -> None:
    @app.job("report")
    async def report(job: Job[None]) -> str | None:
        return job.blockers[0].error_code

    @app.job("k")
    async def k(job: Job[None]) -> Fail:
        return Fail("no")

    first = ledger.enqueue_one(k.new().options(on_failure=report.new()))
    ledger.enqueue(k.new().options(after=[first], on_failure=report.new()))
    async with app.worker(**QUICK):
        await until(lambda: ledger.statuses() == {"failed": 2, "completed": 2})
    assert sorted(ledger.rows("SELECT result::text FROM holdfast.job_history")) == [('"Fail"',), ('"blocker_failed"',)]


async def test_a_job_whose_process_dies_reports(ledger: Ledger, database: str) -> None:
    crash = zombie_app.crash.new().options(max_attempts=1, on_failure=zombie_app.wait.new(0))
    ledger.enqueue(crash)
    async with Process("first", database) as process:
        await until(lambda: not process.alive, 60)
    async with Process("second", database):
        await until(lambda: ledger.statuses() == {"failed": 1, "completed": 1}, 60)
