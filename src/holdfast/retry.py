"""How often a failed job is tried again, and how long it waits."""

from __future__ import annotations

import math
import random
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_ATTEMPTS = 1000
LONGEST = timedelta(days=366)
_MILLISECOND = timedelta(milliseconds=1)
# Past this many doublings every factor above 1.0001 has long reached the maximum.
_LAST_EXPONENT = 1_000_000


@dataclass(frozen=True, slots=True)
class Retry:
    """Wait `base`, then `factor` times as long after each failure, at most `maximum`, plus up to `jitter`.

    >>> Retry(max_attempts=5, base=timedelta(seconds=10)).delay(3)
    datetime.timedelta(seconds=40)
    """

    max_attempts: int = 3
    """Runs in all, 1 to 1000. Default 3."""
    _: KW_ONLY
    base: timedelta = timedelta(seconds=5)
    """Wait after the first failure. Default 5 s."""
    factor: float = 2.0
    """At least 1. Default 2."""
    maximum: timedelta = timedelta(seconds=120)
    """No wait is longer, jitter aside. Default 120 s."""
    jitter: timedelta = timedelta(milliseconds=500)
    """Added to each wait, evenly spread from nothing to this. Default 500 ms."""
    steps: tuple[timedelta, ...] = ()
    """The waits one by one, the last one repeated; when given, base, factor and maximum are not used."""

    def __post_init__(self) -> None:
        if type(self.max_attempts) is not int or not 1 <= self.max_attempts <= MAX_ATTEMPTS:
            raise ValueError(f"max_attempts must be a whole number from 1 to {MAX_ATTEMPTS}")
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise ValueError("factor must be a finite number, at least 1")
        waits = {"base": self.base, "maximum": self.maximum, "jitter": self.jitter}
        waits |= {f"steps[{i}]": step for i, step in enumerate(self.steps)}
        for name, wait in waits.items():
            if not timedelta(0) <= wait <= LONGEST:
                raise ValueError(f"{name} must be from 0 to {LONGEST.days} days")

    @classmethod
    def table(
        cls, steps: Sequence[timedelta], *, max_attempts: int = 3, jitter: timedelta = timedelta(milliseconds=500)
    ) -> Retry:
        """Wait as the table says; past its end, as its last line says."""
        if not steps:
            raise ValueError("a table needs at least one step")
        return cls(max_attempts, jitter=jitter, steps=tuple(steps))

    def delay(self, attempt: int) -> timedelta:
        """Return the wait after failed attempt number `attempt` (the first is 1), without jitter, in whole ms."""
        return timedelta(milliseconds=self._milliseconds(max(attempt, 1)))

    def jittered(self, attempt: int, *, random: Callable[[], float] = random.random) -> timedelta:
        """Return the wait with jitter; `random` gives numbers from 0 to 1."""
        return self.delay(attempt) + self.jitter * random()

    def delays(self) -> list[int]:
        """Return the waits in ms after attempts 1 to `max_attempts`, without jitter."""
        return [self._milliseconds(attempt) for attempt in range(1, self.max_attempts + 1)]

    def _milliseconds(self, attempt: int) -> int:
        if self.steps:
            return round(self.steps[min(attempt, len(self.steps)) - 1] / _MILLISECOND)
        base, maximum = self.base / _MILLISECOND, self.maximum / _MILLISECOND
        try:
            growth = self.factor ** min(attempt - 1, _LAST_EXPONENT)
        except OverflowError:
            growth = math.inf
        return round(min(base * growth, maximum)) if base else 0
