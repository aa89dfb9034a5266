"""Which errors are retried, and the attempt that a handler asks for: it counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, Item, Job, Retry
from tests.engine import cpu
from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

PICKY = replace(AT_ONCE, on=(OSError,), never=(FileNotFoundError,))
ERRORS = (ConnectionError("once"), FileNotFoundError("gone"), ValueError("no"))


@pytest.mark.parametrize("where", ["async", "plain", "batch"])
async def test_only_errors_of_the_policy_are_retried(app: Holdfast, ledger: Ledger, where: str) -> None:
    def act(job: Job[None], error: int) -> str:
        if job.attempt == 1:
            raise ERRORS[error]
        return "went on"

    if where == "plain":
        jobs = ledger.enqueue(*map(app.job("act", retry=PICKY)(act).new, range(3)))
    elif where == "async":

        @app.job("act", retry=PICKY)
        async def act_async(job: Job[None], error: int) -> str:
            return act(job, error)

        jobs = ledger.enqueue(*map(act_async.new, range(3)))
    else:

        @app.batch("act", size=1, retry=PICKY)
        async def act_batch(items: list[Item[dict[str, int]]]) -> list[str]:
            return [act(item.job, item.args["error"]) for item in items]

        jobs = ledger.enqueue(*[act_batch.new({"error": error}) for error in range(3)])
    async with app.worker(**QUICK):
        await until(lambda: ledger.statuses() == {"completed": 1, "failed": 2})
    assert [ledger.job(job)[:5] for job in jobs] == [
        ("completed", 2, "went on", "ConnectionError", "once"),
        ("failed", 1, None, "FileNotFoundError", "gone"),
        ("failed", 1, None, "ValueError", "no"),
    ]


@pytest.mark.parametrize("how", ["raised", "returned"])
@pytest.mark.parametrize("where", ["async", "plain"])
async def test_another_attempt_that_is_asked_for_counts(app: Holdfast, ledger: Ledger, how: str, where: str) -> None:
    def act(job: Job[None]) -> str | Retry.again:
        if how == "raised":
            raise Retry.again(ms(1)) from ValueError(f"attempt {job.attempt}")
        return Retry.again(ms(1))

    if where == "plain":
        job = ledger.enqueue_one(app.job("act", retry=PICKY)(act).new())
    else:

        @app.job("act", retry=PICKY)
        async def act_async(job: Job[None]) -> str | Retry.again:
            return act(job)

        job = ledger.enqueue_one(act_async.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "failed")
    assert ledger.attempts(job) == [(1, "retry"), (2, "retry"), (3, "failed")]
    error = (
        ("ValueError", "attempt 3")
        if how == "raised"
        else ("again", "the handler asked for another attempt after 0.001 s")
    )
    assert ledger.job(job)[3:5] == error


async def test_the_delay_of_an_attempt_that_is_asked_for_is_the_one_given(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None]) -> None:
        raise Retry.again(3600)

    job = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_retried") == 1)
    waits = ledger.value("SELECT available_at - now() > interval '59 minutes' FROM holdfast.job WHERE id = %s", job)
    assert (ledger.job(job)[:2], waits) == (("pending", 1), True)


async def test_the_policy_holds_for_errors_that_do_not_leave_their_process(
    database: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database)
    passes, fails, raised, returned = ledger.enqueue(
        cpu.retried.new("untravelled"), cpu.retried.new("other"), cpu.again.new("raised"), cpu.again.new("returned")
    )
    async with cpu.app.worker(queues={"default": 2}, **QUICK):
        await until(lambda: ledger.statuses() == {"completed": 1, "failed": 3})
    assert ledger.job(passes)[:3] == ("completed", 2, 2)
    assert ledger.job(fails)[1:5] == (1, None, "OSError", "down")
    assert ledger.job(raised)[1:5] == (3, None, "Untravelled", "3 and 2")
    assert ledger.job(returned)[1:4] == (3, None, "again")


async def test_a_process_that_ends_is_retried_whatever_the_policy_is(
    database: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database)
    job = ledger.enqueue_one(cpu.picky_death.new())
    async with cpu.app.worker(queues={"default": 1}, **QUICK):
        await until(lambda: ledger.status(job) == "completed")
    assert ledger.attempts(job) == [(1, "retry"), (2, "completed")]
