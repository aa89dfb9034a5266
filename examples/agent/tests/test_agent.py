"""The agent against the scripted model: what happens once, whatever kills its worker."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from examples.agent.support.agent import answer
from examples.agent.support.app import Approval, app, approval
from tests.kit.ledger import Ledger
from tests.kit.pace import QUICK
from tests.kit.waiting import until, until_true

if TYPE_CHECKING:
    from collections.abc import Generator

    from examples.agent.support.scripted import ScriptedModel

# Two requests, the look at the orders, the wait for the approval, the approval, the refund, and the last request. The
# approval comes while the story is suspended: nothing of it is done before that checkpoint.
KILLS = {"after": 7, "before": 6}
WAITING = (
    "SELECT count(*) FROM holdfast.step s JOIN holdfast.job j ON j.id = s.job_id"
    " WHERE s.state = 'waits' AND j.status = 'pending' AND j.suspect IS NULL"
)
ANSWER = "I am sorry about that: refunded 4900 cents."


@pytest.fixture(autouse=True)
def _of_the_test(database: str) -> None:
    app.url = database


@pytest.fixture
def ledger(database: str) -> Generator[Ledger]:
    with Ledger(database) as ledger:
        yield ledger


@contextmanager
def mortal(moment: str) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.contrib.mortal_agent", moment]
    process = subprocess.Popen(  # noqa: S603 - of this checkout
        command, env=os.environ | {"DATABASE_URL": app.url}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        yield process
        printed, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert printed.split() == ["killed"] * KILLS[moment]


def send(chain: int, decision: Approval) -> str:
    with psycopg.connect(app.url) as conn:
        return app.sync.send(conn, chain, approval, decision)


@pytest.mark.nightly
@pytest.mark.parametrize(("moment", "times"), [("after", 1), ("before", 2)])
def test_killed_at_every_checkpoint_it_refunds_once(
    ledger: Ledger, model: ScriptedModel, moment: str, times: int
) -> None:
    """Between an effect and its checkpoint, a request or a plain tool is repeated; what `step_on` writes is not."""
    job = ledger.enqueue_one(answer.new(1, "My vase arrived broken."))
    with mortal(moment):
        until_true(lambda: ledger.value(WAITING) == 1, 120)
        assert send(job, Approval(approved=True, by="ada")) == "sent"
        until_true(lambda: not ledger.value("SELECT count(*) FROM holdfast.job"), 120)
    assert (ledger.job(job).status, ledger.job(job).result) == ("completed", ANSWER)
    assert ledger.rows("SELECT order_id, cents, by FROM refund") == [(7, 4900, "ada")]
    assert sorted(map(len, model.requests)) == sorted([2, 4, 6] * times)
    assert ledger.value("SELECT count(*) FROM access_log") == times


async def test_a_refusal_is_told_to_the_model(ledger: Ledger, model: ScriptedModel) -> None:
    job = ledger.enqueue_one(answer.new(1, "My vase arrived broken."))
    async with app.worker(**QUICK):
        await until(lambda: ledger.value(WAITING) == 1)
        assert len(model.requests) == 2
        assert send(job, Approval(approved=False, by="grace")) == "sent"
        await until(lambda: ledger.status(job) == "completed")
    assert ledger.job(job).result == "I am sorry about that: grace refused it."
    assert ledger.rows("SELECT * FROM refund") == []


async def test_a_question_that_takes_too_many_tokens_is_a_dead_letter_at_once(
    ledger: Ledger, model: ScriptedModel
) -> None:
    model.tokens = 6_000
    job = ledger.enqueue_one(answer.new(1, "My vase arrived broken."))
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "failed")
    assert ledger.job(job).error_code == "UsageLimitExceeded"
    assert len(model.requests) == 2


async def test_a_customer_who_has_asked_too_often_waits_and_others_do_not(ledger: Ledger, model: ScriptedModel) -> None:
    asked = ledger.enqueue(*[answer.new(1, "My vase arrived broken.") for _ in range(4)])
    other = ledger.enqueue_one(answer.new(2, "My chair arrived broken."))
    # As if 18 of the 20 questions of an hour had been asked just now.
    taken = "INSERT INTO holdfast.limit_rate SELECT limits[1], now() + 18 * interval '3 minutes' FROM holdfast.job"
    ledger.do(f"{taken} WHERE id = %s", asked[0])
    async with app.worker(**QUICK):
        started = "SELECT count(*) FROM holdfast.step WHERE state = 'waits' AND job_id = ANY (%s)"
        await until(lambda: ledger.value(started, [other]) == 1 and ledger.value(started, asked) == 2)
    assert len(model.requests) == 2 * 3
