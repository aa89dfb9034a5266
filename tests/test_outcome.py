from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast import Busy, Fail, HoldfastError, Reschedule, Retry
from holdfast._logs.failure import Failure
from holdfast._model.outcome import Failed, Outcome, Released, Rescheduled, Retried, outcome_of

HOUR = timedelta(hours=1)


class PermanentError(Exception):
    retryable = False


def decide(exc: BaseException, attempt: int = 1, retry: Retry | None = None) -> Outcome:
    return outcome_of(exc, attempt=attempt, retry=retry or Retry(), random=lambda: 0.5)


def test_an_error_is_retried_after_the_wait_of_its_attempt_and_jitter() -> None:
    expected = Retried(timedelta(seconds=10, milliseconds=250), Failure("ValueError", "no"))
    assert decide(ValueError("no"), attempt=2) == expected


def test_fail_may_have_a_code() -> None:
    for raised, code in ((Fail("no"), "Fail"), (Fail("no", code="card_declined"), "card_declined")):
        assert outcome_of(raised, attempt=1, retry=Retry()) == Failed(Failure(code, "no"))
    assert pickle.loads(pickle.dumps(Fail("no", code="declined"))).code == "declined"  # noqa: S301 - our own
    for wrong in ("", "x" * 101):
        with pytest.raises(ValueError, match="code must be"):
            Fail("no", code=wrong)


def test_the_last_attempt_fails() -> None:
    assert decide(ValueError("no"), attempt=3) == Failed(Failure("ValueError", "no"))
    assert decide(ValueError("no"), attempt=1, retry=Retry(max_attempts=1)) == Failed(Failure("ValueError", "no"))


def test_without_a_limit_only_what_is_not_retryable_fails() -> None:
    endless = Retry(max_attempts=None)
    assert isinstance(decide(ValueError("no"), attempt=5_000, retry=endless), Retried)
    assert decide(Fail("no"), retry=endless) == Failed(Failure("Fail", "no"))
    assert decide(PermanentError("gone"), retry=endless) == Failed(Failure("PermanentError", "gone"))


def test_an_error_that_is_not_retryable_ends_at_once() -> None:
    assert decide(PermanentError("gone")) == Failed(Failure("PermanentError", "gone"))
    assert decide(Fail("no such customer")) == Failed(Failure("Fail", "no such customer"))


def test_signals_choose_their_outcome_whatever_the_attempt() -> None:
    assert decide(Reschedule(HOUR), attempt=99) == Rescheduled(HOUR)
    assert decide(Busy(HOUR), attempt=99) == Released(HOUR)


def test_another_attempt_counts_and_keeps_the_error_for_which_it_was_asked() -> None:
    def attempt_for(error: Exception | None, *, number: int = 1) -> Outcome:
        again = Retry.again(HOUR)
        again.__cause__ = error
        travelled = pickle.loads(pickle.dumps(again))  # noqa: S301 - our own
        assert decide(travelled, number) == decide(again, number)
        return decide(again, number, Retry(on=(), never=(OSError,)))

    assert attempt_for(OSError("down")) == Retried(HOUR, Failure("OSError", "down"))
    assert attempt_for(OSError("down"), number=3) == Failed(Failure("OSError", "down"))
    text = "the handler asked for another attempt after 3600 s"
    assert attempt_for(None) == decide(Retry.again(HOUR)) == Retried(HOUR, Failure("again", text))


def test_another_attempt_asked_for_while_an_error_is_handled_keeps_it() -> None:
    def ask() -> None:
        try:
            raise OSError("down")  # noqa: TRY301 - what was handled
        except OSError:
            raise Retry.again(0)  # noqa: B904 - as people write it

    with pytest.raises(Retry.again) as caught:
        ask()
    assert decide(caught.value) == Retried(timedelta(0), Failure("OSError", "down"))


async def test_a_signal_raised_in_a_task_group_is_still_one() -> None:
    async def work() -> None:
        raise Fail("inside")

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(work())
    assert decide(caught.value) == Failed(Failure("Fail", "inside"))


def test_a_group_is_retried_while_one_of_its_errors_may_pass() -> None:
    assert isinstance(decide(ExceptionGroup("", [PermanentError(), ValueError()])), Retried)
    assert isinstance(decide(ExceptionGroup("", [PermanentError(), PermanentError()])), Failed)


def test_a_retryable_that_raises_is_taken_for_true() -> None:
    class OddError(Exception):
        @property
        def retryable(self) -> bool:
            raise RuntimeError

    assert isinstance(decide(OddError()), Retried)


@pytest.mark.parametrize("signal", [Reschedule, Busy, Retry.again])
@pytest.mark.parametrize("wait", [timedelta(seconds=-1), timedelta(days=367)])
def test_waits_are_bounded(signal: type[Reschedule | Busy | Retry.again], wait: timedelta) -> None:
    with pytest.raises(ValueError, match=r"expected seconds or a timedelta.*, from 0 to 366 days"):
        signal(wait)


def test_a_reschedule_may_name_a_moment() -> None:
    moment = datetime(2030, 1, 1, 9, tzinfo=timezone(timedelta(hours=2)))
    assert decide(Reschedule(moment), attempt=99) == Rescheduled(moment)
    assert pickle.loads(pickle.dumps(Reschedule(moment))).after == moment  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("wrong", "error", "states"),
    [
        (datetime(2030, 1, 1), ValueError, r"after: the datetime has no time zone.*datetime\.now\(UTC\)"),  # noqa: DTZ001 - refused
        (datetime(9999, 12, 31, 23, tzinfo=timezone(-HOUR)), ValueError, "after: .* outside the calendar"),
        (datetime(1, 1, 1, tzinfo=timezone(HOUR)), ValueError, "after: .* outside the calendar"),
        ("60", TypeError, "after: expected seconds or a timedelta or a datetime, from 0 to .*, got str"),
        (None, TypeError, "after: expected seconds or a timedelta or a datetime, from 0 to .*, got NoneType"),
    ],
)
def test_a_moment_that_is_none_is_refused(wrong: Any, error: type[Exception], states: str) -> None:
    with pytest.raises(error, match=states):
        Reschedule(wrong)


def test_the_ends_of_the_calendar_are_moments() -> None:
    for moment in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        assert Reschedule(moment).after == moment


def test_busy_takes_a_delay_only() -> None:
    assert Busy(60).retry_after == timedelta(minutes=1)
    with pytest.raises(TypeError, match=r"retry_after: expected seconds or a timedelta, from 0 to .*, got datetime"):
        Busy(datetime(2030, 1, 1, tzinfo=UTC))  # type: ignore[arg-type]


def test_signals_are_not_errors_of_ours() -> None:
    assert not any(issubclass(signal, HoldfastError) for signal in (Fail, Reschedule, Busy))
