"""Cores of a machine, and the statistics of a run."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import simpy

# The upper bounds of a histogram grow by this factor.
FACTOR = 1.1
LEAST = 1e-5
_LOG = math.log(FACTOR)


class Cores:
    """Cores that work first come, first served."""

    def __init__(self, env: simpy.Environment, number: int, speed: float = 1.0) -> None:
        self._env = env
        self._free = [0.0] * number
        self._speed = speed
        self.number = number
        self.busy = 0.0
        """Seconds of work so far, over all cores."""

    def work(self, seconds: float) -> float:
        """Return when this work will be done."""
        seconds /= self._speed
        self.busy += seconds
        end = max(self._env.now, self._free[0]) + seconds
        heapq.heapreplace(self._free, end)
        return end

    def spread(self, seconds: float) -> float:
        """Return when work that many sessions do side by side will be done."""
        return max(self.work(seconds / self.number) for _ in range(self.number))

    @property
    def delay(self) -> float:
        """How long new work would wait for a core."""
        return max(0.0, self._free[0] - self._env.now)


class Histogram:
    """Durations with their counts, in buckets of ten per cent."""

    def __init__(self) -> None:
        self._counts: defaultdict[int, int] = defaultdict(int)
        self.count = 0
        self.total = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        place = 0 if seconds <= LEAST else math.ceil(math.log(seconds / LEAST) / _LOG)
        self._counts[place] += count
        self.count += count
        self.total += seconds * count

    def quantile(self, share: float) -> float:
        """Return an upper bound of the share of all durations; 0 if there are none."""
        left = share * self.count
        for place in sorted(self._counts):
            left -= self._counts[place]
            if left <= 0:
                return float(LEAST * FACTOR**place)
        return 0.0

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def merge(self, other: Histogram) -> None:
        for place, count in other._counts.items():
            self._counts[place] += count
        self.count += other.count
        self.total += other.total


class Tally:
    """Counts by name and by tenth of a second."""

    STEP = 0.1

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._counts: defaultdict[str, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))

    def add(self, name: str, count: float = 1.0) -> None:
        self._counts[name][int(self._env.now / self.STEP)] += count

    def between(self, name: str, start: float, end: float) -> float:
        """Return the count of this name from `start` until before `end`."""
        first, last = round(start / self.STEP), round(end / self.STEP)
        return sum(count for step, count in self._counts[name].items() if first <= step < last)

    def rate(self, name: str, start: float, end: float) -> float:
        """Return the count per second."""
        return self.between(name, start, end) / (end - start)

    def series(self, name: str, end: float, step: float = 1.0) -> Iterator[tuple[float, float]]:
        """Yield the rate per second for each step."""
        at = 0.0
        while at < end - 1e-9:
            yield at, self.rate(name, at, at + step)
            at += step

    def highest(self, name: str, start: float, end: float) -> float:
        """Return the highest rate per second within a tenth of a second."""
        first, last = round(start / self.STEP), round(end / self.STEP)
        found = self._counts[name]
        return max((found.get(step, 0.0) for step in range(first, last)), default=0.0) / self.STEP
