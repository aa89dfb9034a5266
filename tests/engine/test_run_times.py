"""When the attempt started that completed a job, and how long it ran, is kept with the job."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import Continue, Holdfast, Item, Job
from holdfast._drivers import run_sync
from holdfast._store.inspect import AttemptLine, list_attempts
from tests.kit.pace import AT_ONCE, QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

RAN = 0.05


@dataclass
class Letter:
    number: int


def last_attempt(ledger: Ledger, job: int) -> AttemptLine:
    return run_sync(ledger.conn, list_attempts(job))[-1]


def check(line: AttemptLine, attempt: int = 1) -> None:
    assert (line.attempt, line.outcome, line.error, line.traceback) == (attempt, "completed", None, None)
    assert line.worker_name is not None
    assert line.seconds is not None
    assert RAN * 0.9 < line.seconds < 30
    assert line.started_at is not None
    assert abs((line.ended_at - line.started_at).total_seconds() - line.seconds) < 0.001


@pytest.mark.parametrize("result", [None, "done"])
@pytest.mark.parametrize("order_key", [None, "o"])
async def test_a_job_that_completes_at_its_first_try(
    app: Holdfast, ledger: Ledger, result: str | None, order_key: str | None
) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> str | None:
        await asyncio.sleep(RAN)
        return result

    job = ledger.enqueue_one(act.new().options(order_key=order_key) if order_key else act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.completed() == 1)
    check(last_attempt(ledger, job))


async def test_a_job_that_completes_at_its_second_try(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None]) -> None:
        await asyncio.sleep(RAN)
        if job.attempt == 1:
            raise RuntimeError("not yet")

    job = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.completed() == 1)
    assert len(run_sync(ledger.conn, list_attempts(job))) == 2
    check(last_attempt(ledger, job), attempt=2)


async def test_a_job_that_goes_on_or_is_completed_by_its_handler(app: Holdfast, ledger: Ledger, database: str) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> str:
        async with await psycopg.AsyncConnection.connect(database) as conn, conn.transaction():
            await asyncio.sleep(RAN)
            return await job.complete(conn, "done")

    @app.job("go on")
    async def go_on(job: Job[None]) -> Continue[str]:
        await asyncio.sleep(RAN)
        return Continue(act.new())

    job = ledger.enqueue_one(go_on.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.completed() == 2)
    check(last_attempt(ledger, job))
    check(last_attempt(ledger, ledger.value("SELECT id FROM holdfast.job_history WHERE kind = 'act'")))


async def test_jobs_of_one_call_ran_as_long_as_the_call(app: Holdfast, ledger: Ledger) -> None:
    @app.batch("act")
    async def act(items: list[Item[Letter]]) -> None:
        await asyncio.sleep(RAN)

    jobs = ledger.enqueue(*[act.new(Letter(number)) for number in range(5)])
    async with app.worker(**QUICK):
        await until(lambda: ledger.completed() == 5)
    for job in jobs:
        check(last_attempt(ledger, job))


async def test_a_job_that_was_completed_from_outside_has_no_attempt(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    job = ledger.enqueue_one(act.new())
    app.sync.complete_chain(ledger.conn, job, None)
    assert run_sync(ledger.conn, list_attempts(job)) == []
