"""Every ending has a meaning, however the store answers, and nothing comes between it and its bookkeeping."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast, get_args

import pytest

from holdfast.abort import AbortReason
from holdfast.engine.heartbeat import stop_reason
from holdfast.engine.holding import Fate, Holding, fate
from holdfast.engine.hook import Hooks
from holdfast.engine.transition import Transitions
from holdfast.failure import Failure
from holdfast.outcome import Cancelled, Completed, Failed, Outcome, Released, Rescheduled, Retried
from holdfast.signal import AbortSignal
from holdfast.store.answer import Answer
from holdfast.store.lease import Held

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.attempt import Attempt
    from holdfast.engine.transition import Transition

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
WRITTEN: dict[tuple[type[Outcome], Answer], Fate] = {
    (Completed, Answer.completed): "job_completed",
    (Retried, Answer.pending): "job_retried",
    (Retried, Answer.failed): "job_failed",
    (Retried, Answer.cancelled): "job_cancelled",
    (Rescheduled, Answer.pending): "job_rescheduled",
    (Rescheduled, Answer.cancelled): "job_cancelled",
    (Released, Answer.pending): "job_released",
    (Released, Answer.cancelled): "job_cancelled",
    (Failed, Answer.failed): "job_failed",
    (Cancelled, Answer.cancelled): "job_cancelled",
}


class _Claimed:
    id = 7
    kind = "act"
    attempt = 1
    max_attempts = 3
    chain_id = 7
    headers = None


class _Attempt:
    """As much of an attempt as is looked at when its ending is written."""

    begun = True
    completed = False

    def __init__(self, token: int = 1) -> None:
        self.claimed = _Claimed()
        self.held = Held(7, token)
        self.signal = AbortSignal()


def _attempt(token: int = 1) -> Attempt:
    return cast("Attempt", _Attempt(token))


def _holding(*listeners: Callable[[Transition], None]) -> Holding:
    return Holding(Transitions("w", listeners), Hooks("w", on_failure=(), on_dead_letter=()))


def test_there_is_an_example_of_each_outcome() -> None:
    assert set(EXAMPLES) == set(OUTCOMES)


@pytest.mark.parametrize("answer", Answer)
@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_every_pair_has_a_meaning(outcome: type[Outcome], answer: Answer) -> None:
    holding, attempt = _holding(), _attempt()
    holding.held[attempt.held] = attempt
    holding.written([(attempt, EXAMPLES[outcome])], {attempt.held: answer})
    assert holding.held == {}
    expected = WRITTEN.get((outcome, answer), "job_lost")
    assert holding.counts == {expected: 1}
    assert attempt.signal.aborted is (expected == "job_lost")
    assert (fate(EXAMPLES[outcome], answer) in get_args(Fate)) is (expected != "job_lost")


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_an_ending_without_an_answer_is_a_completion(outcome: type[Outcome]) -> None:
    holding, attempt = _holding(), _attempt()
    holding.held[attempt.held] = attempt
    holding.written([(attempt, EXAMPLES[outcome])], {})
    assert holding.held == {}
    assert holding.counts == {"job_completed" if outcome is Completed else "job_lost": 1}


@pytest.mark.parametrize("answer", Answer)
def test_every_answer_to_a_renewal_has_a_meaning(answer: Answer) -> None:
    reason = stop_reason(answer)
    assert reason is None if answer is Answer.busy else isinstance(reason, AbortReason)


@pytest.mark.parametrize("raised", [RuntimeError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
async def test_all_is_let_go_of_before_anybody_is_told(raised: type[BaseException]) -> None:
    """Whatever a listener raises, and whatever it looks at."""
    seen: list[tuple[dict[Any, Any], dict[str, int]]] = []

    def look(_: Transition) -> None:
        seen.append((dict(holding.held), dict(holding.counts)))
        raise raised

    holding = _holding(look)
    attempts = [_attempt(token) for token in range(1, 4)]
    for attempt in attempts:
        holding.held[attempt.held] = attempt
    batch: list[tuple[Attempt, Outcome]] = [(attempt, Completed()) for attempt in attempts]
    holding.written(batch, {attempts[1].held: Answer.cancelled})
    assert [held for held, _ in seen] == [{}, {}, {}]
    assert all(counts["job_completed"] == 2 for _, counts in seen)
    assert holding.counts == {"job_completed": 2, "job_lost": 1}
