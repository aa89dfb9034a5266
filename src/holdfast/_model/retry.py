"""Retry policies: how many attempts a job has, and the delay between them."""

from __future__ import annotations

import math
import random
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast._model.call import explains

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_ATTEMPTS = 1000
LONGEST = timedelta(days=366)
_MILLISECOND = timedelta(milliseconds=1)
# After this many doublings every factor above 1.0001 has reached the maximum.
_LAST_EXPONENT = 1_000_000


@explains
@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential backoff: wait `base`, then `factor` times as long after each failure, at most `maximum`, plus jitter.

    >>> Retry(max_attempts=5, base=timedelta(seconds=10)).delay(3)
    datetime.timedelta(seconds=40)
    >>> Retry(max_attempts=None).delay(5_000)
    datetime.timedelta(seconds=120)
    """

    max_attempts: int | None = 3
    """Attempts in all, 1 to 1000. None: no limit, so failures never make the job a dead letter. Default: 3."""
    _: KW_ONLY
    base: timedelta = timedelta(seconds=5)
    """Delay after the first failure. Default: 5 seconds."""
    factor: float = 2.0
    """The number by which the delay is multiplied after each failure, at least 1. Default: 2."""
    maximum: timedelta = timedelta(seconds=120)
    """Longest delay, before jitter. Default: 120 seconds."""
    jitter: timedelta = timedelta(milliseconds=500)
    """Largest random addition to each delay, uniformly distributed. Default: 500 ms."""
    steps: tuple[timedelta, ...] = ()
    """The delays one by one; the last is repeated. If given, base, factor and maximum are ignored. Default: none."""

    def __post_init__(self) -> None:
        limit = self.max_attempts
        if limit is not None and (type(limit) is not int or not 1 <= limit <= MAX_ATTEMPTS):
            raise ValueError(f"max_attempts must be a whole number from 1 to {MAX_ATTEMPTS}, or None for no limit")
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise ValueError("factor must be a finite number, at least 1")
        waits = {"base": self.base, "maximum": self.maximum, "jitter": self.jitter}
        waits |= {f"steps[{i}]": step for i, step in enumerate(self.steps)}
        for name, wait in waits.items():
            if not timedelta(0) <= wait <= LONGEST:
                raise ValueError(f"{name} must be from 0 to {LONGEST.days} days")

    @classmethod
    def table(
        cls,
        steps: Sequence[timedelta],
        *,
        max_attempts: int | None = 3,
        jitter: timedelta = timedelta(milliseconds=500),
    ) -> Retry:
        """Return a policy with the delays of a table.

        `steps`: the delays; the last one is repeated. `max_attempts`: attempts in all. Default: 3. `jitter`: largest
        random addition to each delay. Default: 500 ms.
        """
        if not steps:
            raise ValueError("a table needs at least one step")
        return cls(max_attempts, jitter=jitter, steps=tuple(steps))

    def is_last(self, attempt: int) -> bool:
        """Return whether no attempt follows failed attempt number `attempt` (the first is 1)."""
        return self.max_attempts is not None and attempt >= self.max_attempts

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


def tries(attempt: int, max_attempts: int | None) -> str:
    """Format a job's attempts for a table.

    >>> tries(2, 3), tries(7, None)
    ('2/3', '7')
    """
    return str(attempt) if max_attempts is None else f"{attempt}/{max_attempts}"
