"""Every ending has a meaning, however the store answers, and nothing comes between it and its bookkeeping."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast, get_args

import pytest

from holdfast._engine.jobs.heartbeat import stop_reason
from holdfast._engine.jobs.held_jobs import Fate, HeldJobs, fate
from holdfast._engine.link import Links
from holdfast._engine.report.transition import Transitions
from holdfast._engine.session import Session
from holdfast._logs.failure import Failure
from holdfast._model.errors import AbortReason, AbortSignal
from holdfast._model.outcome import Cancelled, Completed, Failed, Outcome, Released, Rescheduled, Retried
from holdfast._store.lease import ClaimAnswer, Held

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.report.transition import Transition

FAILURE = Failure("Broken", "it broke")
NOW = timedelta(0)
EXAMPLES: dict[type[Outcome], Outcome] = {
    type(outcome): outcome
    for outcome in (
        Completed(),
        Retried(NOW, FAILURE),
        Rescheduled(NOW),
        Released(),
        Failed(FAILURE),
        Cancelled(),
    )
}
OUTCOMES = get_args(Outcome)
WRITTEN: dict[tuple[type[Outcome], ClaimAnswer], Fate] = {
    (Completed, ClaimAnswer.completed): "job_completed",
    (Retried, ClaimAnswer.pending): "job_retried",
    (Retried, ClaimAnswer.failed): "job_failed",
    (Retried, ClaimAnswer.cancelled): "job_cancelled",
    (Rescheduled, ClaimAnswer.pending): "job_rescheduled",
    (Rescheduled, ClaimAnswer.cancelled): "job_cancelled",
    (Released, ClaimAnswer.pending): "job_released",
    (Released, ClaimAnswer.cancelled): "job_cancelled",
    (Failed, ClaimAnswer.failed): "job_failed",
    (Cancelled, ClaimAnswer.cancelled): "job_cancelled",
}


class _Claimed:
    id = 7
    kind = "act"
    attempt = 1
    max_attempts = 3
    chain_id = 7
    queue = "default"
    payload_version = 1
    headers = None


class _Attempt:
    """As much of an attempt as is looked at when its ending is written."""

    entered = True
    completed = False
    follower = None
    completer = SimpleNamespace(label="")

    def __init__(self, token: int, outcome: Outcome) -> None:
        self.outcome = outcome
        self.claimed = _Claimed()
        self.held = Held(7, token)
        self.signal = AbortSignal()


def _attempt(outcome: Outcome, token: int = 1) -> Attempt:
    return cast("Attempt", _Attempt(token, outcome))


def _held_jobs(*listeners: Callable[[Transition], None]) -> HeldJobs:
    return HeldJobs(Session(Links("", name="", timeout=0.0)), Transitions("w", listeners))


def test_there_is_an_example_of_each_outcome() -> None:
    assert set(EXAMPLES) == set(OUTCOMES)


@pytest.mark.parametrize("answer", ClaimAnswer)
@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_every_pair_has_a_meaning(outcome: type[Outcome], answer: ClaimAnswer) -> None:
    held_jobs, attempt = _held_jobs(), _attempt(EXAMPLES[outcome])
    held_jobs.held[attempt.held] = attempt
    held_jobs.written([attempt], {attempt.held: answer})
    assert held_jobs.held == {}
    expected = WRITTEN.get((outcome, answer), "job_lost")
    assert held_jobs.counts == {expected: 1}
    assert attempt.signal.aborted is (expected == "job_lost")
    assert (fate(EXAMPLES[outcome], answer) in get_args(Fate)) is (expected != "job_lost")


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_an_ending_without_an_answer_is_a_completion(outcome: type[Outcome]) -> None:
    held_jobs, attempt = _held_jobs(), _attempt(EXAMPLES[outcome])
    held_jobs.held[attempt.held] = attempt
    held_jobs.written([attempt], {})
    assert held_jobs.held == {}
    assert held_jobs.counts == {"job_completed" if outcome is Completed else "job_lost": 1}


@pytest.mark.parametrize("answer", ClaimAnswer)
def test_every_answer_to_a_renewal_has_a_meaning(answer: ClaimAnswer) -> None:
    reason = stop_reason(answer)
    assert reason is None if answer is ClaimAnswer.busy else isinstance(reason, AbortReason)


@pytest.mark.parametrize("raised", [RuntimeError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
async def test_all_jobs_are_released_before_any_listener_is_called(raised: type[BaseException]) -> None:
    """Whatever a listener raises, and whatever it looks at."""
    seen: list[tuple[dict[Any, Any], dict[str, int]]] = []

    def look(_: Transition) -> None:
        seen.append((dict(held_jobs.held), dict(held_jobs.counts)))
        raise raised

    held_jobs = _held_jobs(look)
    attempts = [_attempt(Completed(), token) for token in range(1, 4)]
    for attempt in attempts:
        held_jobs.held[attempt.held] = attempt
    held_jobs.written(attempts, {attempts[1].held: ClaimAnswer.cancelled})
    assert [held for held, _ in seen] == [{}, {}, {}]
    assert all(counts["job_completed"] == 2 for _, counts in seen)
    assert held_jobs.counts == {"job_completed": 2, "job_lost": 1}
