"""Retry policies: how many attempts a job has, and the delay between them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast._logs.failure import attribute, leaves
from holdfast._model.call import explains
from holdfast._model.duration import LONGEST, as_timedelta

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._model.duration import Duration

MAX_ATTEMPTS = 1000
_BASE = timedelta(seconds=5)
_MAXIMUM = timedelta(seconds=120)
_JITTER = timedelta(milliseconds=500)
_SECOND = timedelta(seconds=1)
_MILLISECOND = timedelta(milliseconds=1)
Errors: TypeAlias = "tuple[type[BaseException], ...]"
# After this many doublings every factor above 1.0001 has reached the maximum.
_LAST_EXPONENT = 1_000_000


@explains
@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """Exponential backoff: wait `base`, then `factor` times as long after each failure, at most `maximum`, plus jitter.

    Every delay is given in seconds or as a timedelta, from 0 to 366 days.

    >>> Retry(max_attempts=5, base=10).delay(3)
    datetime.timedelta(seconds=40)
    >>> Retry(max_attempts=None).delay(5_000)
    datetime.timedelta(seconds=120)
    """

    @explains
    class again(Exception):  # noqa: N801, N818 - written as a verb of Retry, and a signal from a handler
        """Raise or return it to try again after a delay. The attempt counts: after the last one, the job fails.

        `delay`: seconds or a timedelta, at most 366 days. Write `raise Retry.again(60) from error` to keep the error.
        """

        def __init__(self, delay: Duration) -> None:
            super().__init__(delay)
            self.delay: timedelta = as_timedelta("delay", delay, limit=LONGEST)

        def __str__(self) -> str:
            return f"the handler asked for another attempt after {self.delay.total_seconds():g} s"

        def __reduce__(self) -> tuple[Any, ...]:
            # A handler in a child process may raise it. Python does not pickle the cause of an exception.
            cause = {} if self.error is self else {"__cause__": self.error}
            return Retry.again, (self.delay,), cause

        @property
        def error(self) -> BaseException:
            """The error for which it was raised; itself if there is none."""
            return self.__cause__ or (None if self.__suppress_context__ else self.__context__) or self

    max_attempts: int | None = 3
    """Attempts in all, 1 to 1000. None: no limit, so failures never make the job a dead letter. Default: 3."""
    _: KW_ONLY
    base: timedelta = _BASE
    """Delay after the first failure. Default: 5 seconds, or `maximum` if that is shorter."""
    factor: float = 2.0
    """The number by which the delay is multiplied after each failure, at least 1. Default: 2."""
    maximum: timedelta = _MAXIMUM
    """Longest delay, before jitter. Default: 120 seconds, or `base` if that is longer."""
    jitter: timedelta = _JITTER
    """Largest random addition to each delay, uniformly distributed. Default: 500 ms."""
    steps: tuple[timedelta, ...] = ()
    """The delays one by one; the last is repeated. If given, base, factor and maximum are ignored. Default: none."""
    on: Errors = (BaseException,)
    """Only these errors are retried, and their subclasses. Default: all."""
    never: Errors = ()
    """These errors are not retried, nor their subclasses, also if they are in `on`. Default: none."""

    def __init__(  # noqa: PLR0913 - one keyword per field
        self,
        max_attempts: int | None = 3,
        *,
        base: Duration | None = None,
        factor: float = 2.0,
        maximum: Duration | None = None,
        jitter: Duration = _JITTER,
        steps: Iterable[Duration] = (),
        on: Iterable[type[BaseException]] = (BaseException,),
        never: Iterable[type[BaseException]] = (),
    ) -> None:
        limit = max_attempts
        if limit is not None and (type(limit) is not int or not 1 <= limit <= MAX_ATTEMPTS):
            raise ValueError(
                f"max_attempts: expected a whole number from 1 to {MAX_ATTEMPTS}, or None, got {limit!r:.40}"
            )
        number: Any = factor
        if not isinstance(number, int | float) or not (math.isfinite(number) and number >= 1):
            raise ValueError(f"factor: expected a finite number, at least 1, got {number!r:.40}")
        first, longest = _limits(base, maximum)
        fields = {
            "max_attempts": max_attempts,
            "base": first,
            "factor": factor,
            "maximum": longest,
            "jitter": as_timedelta("jitter", jitter),
            "steps": tuple(as_timedelta(f"steps[{i}]", step) for i, step in enumerate(steps)),
            "on": _errors("on", on),
            "never": _errors("never", never),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @classmethod
    def table(
        cls,
        steps: Iterable[Duration],
        *,
        max_attempts: int | None = 3,
        jitter: Duration = _JITTER,
        on: Iterable[type[BaseException]] = (BaseException,),
        never: Iterable[type[BaseException]] = (),
    ) -> Retry:
        """Return a policy with the delays of a table.

        `steps`: the delays, in seconds or as timedeltas; the last one is repeated. `max_attempts`: attempts in all.
        Default: 3. `jitter`: largest random addition to each delay. Default: 500 ms. `on`, `never`: the errors that are
        retried, and those that are not. Default: all, and none.
        """
        made = cls(max_attempts, jitter=jitter, steps=steps, on=on, never=never)
        if not made.steps:
            raise ValueError("a table needs at least one step")
        return made

    def is_last(self, attempt: int) -> bool:
        """Return whether no attempt follows failed attempt number `attempt` (the first is 1)."""
        return self.max_attempts is not None and attempt >= self.max_attempts

    def retries(self, exc: BaseException) -> bool:
        """Return whether an error is retried, if attempts are left. Of a group, one that is retried is enough.

        An error that has a `retryable` of its own, true or false, decides by itself unless it is in `never`.

        >>> Retry(on=(OSError,), never=(FileNotFoundError,)).retries(ConnectionError())
        True
        """
        if isinstance(exc, BaseExceptionGroup):
            return any(self.retries(leaf) for leaf in leaves(exc))
        if isinstance(exc, self.never):
            return False
        own = attribute(exc, "retryable")
        return own if isinstance(own, bool) else isinstance(exc, self.on)

    def delay(self, attempt: int) -> timedelta:
        """Return the delay after failed attempt number `attempt` (the first is 1), without jitter, in whole ms."""
        return timedelta(milliseconds=self._milliseconds(max(attempt, 1)))

    def jittered(self, attempt: int, *, random: Callable[[], float] = random.random) -> timedelta:
        """Return the delay with jitter; `random` returns numbers from 0 to 1."""
        return self.delay(attempt) + self.jitter * random()

    def delays(self) -> list[int]:
        """Return the delays in milliseconds after attempts 1 to `max_attempts`, without jitter.

        Without a limit, return the delays until they stop changing, at most 1000; the last one repeats.
        """
        waits = [self._milliseconds(attempt) for attempt in range(1, (self.max_attempts or MAX_ATTEMPTS) + 1)]
        while self.max_attempts is None and waits[-2:-1] == waits[-1:]:
            waits.pop()
        return waits

    def _milliseconds(self, attempt: int) -> int:
        if self.steps:
            return round(self.steps[min(attempt, len(self.steps)) - 1] / _MILLISECOND)
        base, maximum = self.base / _MILLISECOND, self.maximum / _MILLISECOND
        try:
            growth = self.factor ** min(attempt - 1, _LAST_EXPONENT)
        except OverflowError:
            growth = math.inf
        return round(min(base * growth, maximum)) if base else 0


def _limits(base: Duration | None, maximum: Duration | None) -> tuple[timedelta, timedelta]:
    """Return the first and the longest delay. The default of one follows the other, as in the settings."""
    first = None if base is None else as_timedelta("base", base)
    longest = None if maximum is None else as_timedelta("maximum", maximum)
    if first is None:
        return (_BASE, _MAXIMUM) if longest is None else (min(_BASE, longest), longest)
    if longest is None:
        return first, max(first, _MAXIMUM)
    if first > longest:
        one, other = (f"{delay / _SECOND:.15g} s" for delay in (first, longest))
        raise ValueError(f"base, maximum: the first delay, {one}, is longer than the longest, {other}: correct one")
    return first, longest


def _errors(name: str, given: Iterable[type[BaseException]]) -> Errors:
    known: Any = given
    classes: Any = (None,) if isinstance(known, type) or not isinstance(known, Iterable) else tuple(known)
    if not all(isinstance(cls, type) and issubclass(cls, BaseException) for cls in classes):
        raise TypeError(f"{name}: expected classes of exceptions, such as {name}=(ConnectionError,), got {given!r:.60}")
    errors: Errors = classes
    return errors


def tries(attempt: int, max_attempts: int | None) -> str:
    """Format a job's attempts for a table.

    >>> tries(2, 3), tries(7, None)
    ('2/3', '7')
    """
    return str(attempt) if max_attempts is None else f"{attempt}/{max_attempts}"
