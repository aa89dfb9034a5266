"""How an attempt ended: the values the store writes, and what a handler raises or returns to choose one."""

# ruff: noqa: N818 - what a handler raises here is a signal, not an error
from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from holdfast.failure import CODE_LIMIT, Failure, only_leaf, retryable

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.retry import Retry

LONGEST_WAIT = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class Completed:
    """The job is done; `result` is JSON text."""

    result: str | None = None
    next: str | None = None
    """The job that follows in the chain, as JSON text."""


@dataclass(frozen=True, slots=True)
class Retried:
    """The attempt failed and counts; the job waits."""

    delay: timedelta
    failure: Failure
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    """Not written; for who is told of the failure in this process."""


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """The handler asked to run again later; that is no failure."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class Released:
    """The job goes back and the attempt does not count."""

    delay: timedelta = timedelta(0)
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The job is a dead letter."""

    failure: Failure
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    """As in `Retried`."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job was cancelled while it ran."""

    failure: Failure | None = None


Outcome: TypeAlias = Completed | Retried | Rescheduled | Released | Failed | Cancelled


class Fail(Exception):
    """Raise or return to end the job as failed, whatever attempts are left.

    `code`: groups dead letters, at most 100 characters. Defaults to `Fail`.
    """

    retryable = False

    def __init__(self, why: str, *, code: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        if code is not None and not 1 <= len(code) <= CODE_LIMIT:
            raise ValueError(f"code must be a text of 1 to {CODE_LIMIT} characters")
        self.code = type(self).__name__ if code is None else code


class Reschedule(Exception):
    """Raise or return to run the job again after a while."""

    def __init__(self, after: timedelta) -> None:
        super().__init__(after)
        self.after = _wait("after", after)


class Busy(Exception):
    """Raise or return when what the job calls is saturated: it goes back uncounted and its queue rests."""

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__(retry_after)
        self.retry_after = _wait("retry_after", retry_after)


Signal: TypeAlias = Fail | Reschedule | Busy


def outcome_of(
    exc: BaseException,
    *,
    attempt: int,
    retry: Retry,
    most: int | None = None,
    random: Callable[[], float] = random.random,
) -> Outcome:
    """Decide what becomes of a job whose handler ended with `exc`, or returned it; `most` attempts, if not retry's."""
    exc = only_leaf(exc)
    match exc:
        case Reschedule():
            return Rescheduled(exc.after)
        case Busy():
            return Released(exc.retry_after)
    failure = Failure.of(exc)
    if not retryable(exc) or attempt >= (retry.max_attempts if most is None else most):
        return Failed(failure, exc)
    return Retried(retry.jittered(attempt, random=random), failure, exc)


def _wait(name: str, value: timedelta) -> timedelta:
    if not timedelta(0) <= value <= LONGEST_WAIT:
        raise ValueError(f"{name} must be from 0 to {LONGEST_WAIT.days} days")
    return value
