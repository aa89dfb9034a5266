"""The outcomes that an attempt can end with, and the signals by which a handler asks for one."""

# ruff: noqa: N818 - the exceptions are signals from a handler, not errors
from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from holdfast._logs.failure import CODE_LIMIT, Failure, only_leaf
from holdfast._model.call import explains
from holdfast._model.duration import LONGEST, as_timedelta
from holdfast._model.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._model.duration import Duration


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


@explains
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
        self.code: str = type(self).__name__ if code is None else code


@explains
class Reschedule(Exception):
    """Raise or return it to run the job again, after a delay or at a given time. The attempt does not count.

    `after`: seconds or a timedelta, at most 366 days, or a datetime with a time zone, compared with PostgreSQL's clock.
    If that time has passed, the job is due at once.

    >>> Reschedule(300).after
    datetime.timedelta(seconds=300)
    >>> Reschedule(datetime(2030, 1, 1, 9, tzinfo=UTC)).after.isoformat()
    '2030-01-01T09:00:00+00:00'
    """

    after: timedelta | datetime

    def __init__(self, after: Duration | datetime) -> None:
        super().__init__(after)
        if isinstance(after, datetime):
            self.after = _moment("after", after)
        else:
            self.after = as_timedelta("after", after, limit=LONGEST, others=" or a datetime")


@explains
class Busy(Exception):
    """Raise or return it when a service is overloaded: the job returns to its queue, and the queue pauses.

    The attempt does not count. `retry_after`: seconds or a timedelta, at most 366 days.
    """

    def __init__(self, retry_after: Duration) -> None:
        super().__init__(retry_after)
        self.retry_after: timedelta = as_timedelta("retry_after", retry_after, limit=LONGEST)


Signal: TypeAlias = Fail | Reschedule | Busy | Retry.again


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
        case Retry.again():
            retried, delay, exc = True, exc.delay, exc.error
        case _:
            retried, delay = retry.retries(exc), retry.jittered(attempt, random=random)
    failure = Failure.of(exc)
    if not retried or retry.is_last(attempt):
        return Failed(failure, exc)
    return Retried(delay, failure, exc)


def _moment(name: str, value: datetime) -> datetime:
    if value.utcoffset() is None:
        example = "datetime.now(UTC) + timedelta(hours=1)"
        raise ValueError(f"{name}: the datetime has no time zone, so its moment is unknown. Give one, as in {example}")
    try:
        value.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{name}: the datetime is outside the calendar, in UTC the years 1 to 9999") from None
    return value
