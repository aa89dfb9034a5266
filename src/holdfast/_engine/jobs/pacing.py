"""The pace of queues: rate limits, and the rest of a slot between two jobs."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Unused permits are kept for this many seconds: a late check loses no starts, and bursts stay small.
KEPT_SECONDS = 0.1


class Bucket:
    """A token bucket: permits to start arrive at a fixed rate, and only a few unused ones are kept."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self.rate = rate
        self._limit = 1 + rate * KEPT_SECONDS
        self._clock = clock
        self._permits = 1.0
        self._filled_at = clock()

    @property
    def permits(self) -> float:
        now = self._clock()
        self._permits = min(self._limit, self._permits + (now - self._filled_at) * self.rate)
        self._filled_at = now
        return self._permits

    def take(self) -> None:
        self._permits -= 1

    def opens_in(self) -> float | None:
        """Return in how many seconds the next permit arrives. None: one is available."""
        return None if (permits := self.permits) >= 1 else (1 - permits) / self.rate


class Pacing:
    """The rate limit of each queue, and the rest of its slots between two jobs."""

    def __init__(self, delays: Mapping[str, float], clock: Callable[[], float]) -> None:
        self._delays = {queue: delay for queue, delay in delays.items() if delay > 0}
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}
        self._resting: dict[str, deque[float]] = {queue: deque() for queue in self._delays}
        """For each resting slot, when its rest ends."""

    def __bool__(self) -> bool:
        return bool(self._delays or self._buckets)

    def control(self, rates: Mapping[str, float]) -> set[str]:
        """Apply these rates and return the queues that are slower now. An unchanged rate keeps its permits."""
        before, buckets = self._buckets, {}
        for queue, rate in rates.items():
            if math.isfinite(rate):
                known = self._buckets.get(queue)
                buckets[queue] = known if known is not None and known.rate == rate else Bucket(rate, self._clock)
        self._buckets = buckets
        return {name for name, bucket in buckets.items() if name not in before or bucket.rate < before[name].rate}

    def free_slots(self, queue: str, slots: int) -> int | None:
        """Return how many jobs of this queue may start now in `slots` free slots. None: no rate limit or delay."""
        resting, bucket = self._resting.get(queue), self._buckets.get(queue)
        if resting is None and bucket is None:
            return None
        if resting:
            slots -= len(self._still(resting))
        return slots if bucket is None else min(slots, int(bucket.permits))

    def starts(self, queue: str) -> None:
        if (bucket := self._buckets.get(queue)) is not None:
            bucket.take()

    def ends(self, queue: str) -> None:
        if (delay := self._delays.get(queue)) is not None:
            self._resting[queue].append(self._clock() + delay)

    def opens_in(self, queue: str) -> float | None:
        """Return in how many seconds this queue may start more jobs than now. None: only when a job ends."""
        resting, bucket = self._resting.get(queue), self._buckets.get(queue)
        waits = [None if bucket is None else bucket.opens_in()]
        if resting and self._still(resting):
            waits.append(resting[0] - self._clock())
        return min((wait for wait in waits if wait is not None), default=None)

    def _still(self, resting: deque[float]) -> deque[float]:
        """Remove the rests that are over, and return the others."""
        now = self._clock()
        while resting and resting[0] <= now:
            resting.popleft()
        return resting
