"""The same retry is sent three times: by an impatient person, or by a proxy that repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import Fail, Holdfast, Job
from holdfast._ops.caller import Person, Role
from holdfast._ops.requests import JobAction
from holdfast._ops.service import Service
from tests.kit.pace import PATIENT
from tests.kit.waiting import until

if TYPE_CHECKING:
    from holdfast._ops.responses.job import JobActionResult
    from tests.kit.ledger import Ledger

ANN = Person("ann", Role.OPERATOR)


async def dead_letter(app: Holdfast, ledger: Ledger, *, fails: int) -> int:
    """Return a charge that failed; it does so `fails` times in all."""
    runs: list[int] = []

    @app.job("charge")
    async def charge(job: Job[None]) -> None:
        runs.append(job.id)
        if len(runs) <= fails:
            raise Fail("declined")

    job = ledger.enqueue_one(charge.new())
    async with app.worker(**PATIENT):
        await until(lambda: ledger.status(job) == "failed")
    return job


async def retry(app: Holdfast, job: int, *, again: bool = False) -> JobActionResult:
    async with Service(app.url) as service:
        return await service.act_on_jobs(JobAction(action="retry", ids=[job], preview=False, again=again), ANN)


async def test_three_identical_requests_make_one_replay(app: Holdfast, ledger: Ledger) -> None:
    dead = await dead_letter(app, ledger, fails=1)
    answers = [await retry(app, dead) for _ in range(3)]
    assert [answer.done for answer in answers] == [1, 0, 0]
    replay = ledger.value("SELECT id FROM holdfast.job WHERE replay_of = %s", dead)
    assert answers[1].refused[0].why.startswith(f"it was retried already, as job {replay}")
    assert ledger.value("SELECT count(*) FROM holdfast.replay") == 1


async def test_what_a_replay_has_completed_is_not_done_once_more(app: Holdfast, ledger: Ledger) -> None:
    dead = await dead_letter(app, ledger, fails=1)
    assert (await retry(app, dead)).done == 1
    async with app.worker(**PATIENT):
        await until(lambda: ledger.completed() == 1)
    assert (await retry(app, dead)).done == 0
    assert (await retry(app, dead, again=True)).done == 1


async def test_what_failed_again_may_be_replayed_again(app: Holdfast, ledger: Ledger) -> None:
    dead = await dead_letter(app, ledger, fails=2)
    assert (await retry(app, dead)).done == 1
    async with app.worker(**PATIENT):
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.job_failed") == 2)
    assert (await retry(app, dead)).done == 1
