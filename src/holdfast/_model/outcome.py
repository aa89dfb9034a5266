"""Outcomes of an attempt: the values that the store writes, and what a handler raises or returns to choose one."""

# ruff: noqa: N818 - these exceptions are signals from a handler, not errors
from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from holdfast._logs.failure import CODE_LIMIT, Failure, only_leaf, retryable

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._model.retry import Retry

LONGEST_WAIT = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class Completed:
    """The job is done; `result` is JSON text."""

    result: str | None = None
    next: str | None = None
    """The next job of the chain, as JSON text."""


@dataclass(frozen=True, slots=True)
class Retried:
    """The attempt failed and counts; the job waits for the next one."""

    delay: timedelta
    failure: Failure
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    """Not stored; passed to the failure hooks of this process."""


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """The handler asked to run again later, which does not count as a failure."""

    after: timedelta | datetime
    """A delay, or a time with a time zone."""


@dataclass(frozen=True, slots=True)
class Released:
    """The job returns to its queue and the attempt does not count."""

    delay: timedelta = timedelta(0)
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The job is a dead letter."""

    failure: Failure
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    """See `Retried`."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job was cancelled while it ran."""

    failure: Failure | None = None


Outcome: TypeAlias = Completed | Retried | Rescheduled | Released | Failed | Cancelled


class Fail(Exception):
    """Raise or return it to end the job as failed, even if attempts are left.

    `code`: groups dead letters, at most 100 characters. Default: the name of the class.
    """

    retryable = False

    def __init__(self, why: str, *, code: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        if code is not None and not 1 <= len(code) <= CODE_LIMIT:
            raise ValueError(f"code must be a text of 1 to {CODE_LIMIT} characters")
        self.code = type(self).__name__ if code is None else code


class Reschedule(Exception):
    """Raise or return it to run the job again, after a delay or at a given time. The attempt does not count.

    `after`: a timedelta of at most 366 days, or a datetime with a time zone, compared with PostgreSQL's clock. If that
    time has passed, the job is due at once.

    >>> Reschedule(timedelta(minutes=5)).after
    datetime.timedelta(seconds=300)
    >>> Reschedule(datetime(2030, 1, 1, 9, tzinfo=UTC)).after.isoformat()
    '2030-01-01T09:00:00+00:00'
    """

    def __init__(self, after: timedelta | datetime) -> None:
        super().__init__(after)
        self.after = _moment("after", after) if isinstance(after, datetime) else _wait("after", after, " or a datetime")


class Busy(Exception):
    """Raise or return it when a service is overloaded: the job returns to its queue, and the queue pauses.

    The attempt does not count. `retry_after`: a timedelta of at most 366 days.
    """

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__(retry_after)
        self.retry_after = _wait("retry_after", retry_after)


Signal: TypeAlias = Fail | Reschedule | Busy


def outcome_of(
    exc: BaseException,
    *,
    attempt: int,
    retry: Retry,
    random: Callable[[], float] = random.random,
) -> Outcome:
    """Return the outcome of an attempt whose handler raised or returned `exc`."""
    exc = only_leaf(exc)
    match exc:
        case Reschedule():
            return Rescheduled(exc.after)
        case Busy():
            return Released(exc.retry_after)
    failure = Failure.of(exc)
    if not retryable(exc) or retry.is_last(attempt):
        return Failed(failure, exc)
    return Retried(retry.jittered(attempt, random=random), failure, exc)


def _moment(name: str, value: datetime) -> datetime:
    if value.utcoffset() is None:
        example = "datetime.now(UTC) + timedelta(hours=1)"
        raise ValueError(f"{name}: the datetime has no time zone, so its moment is unknown. Give one, as in {example}")
    try:
        value.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{name}: the datetime is outside the calendar, in UTC the years 1 to 9999") from None
    return value


def _wait(name: str, value: timedelta, others: str = "") -> timedelta:
    if not isinstance(value, timedelta):
        raise TypeError(f"{name}: expected a timedelta{others}, got {type(value).__name__}")
    if not timedelta(0) <= value <= LONGEST_WAIT:
        raise ValueError(f"{name} must be from 0 to {LONGEST_WAIT.days} days")
    return value
