"""Slots: how many jobs may run at once, in all and by queue, and how many more may be held ready."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Held ready is what will start within this much time at the present pace: a slow worker hoards nothing, and an urgent
# job is claimed soon.
AHEAD_SECONDS = 0.1
PACE_SECONDS = 0.02


class Slots:
    """Shared by all databases that a worker serves."""

    def __init__(
        self, concurrency: int, queues: Mapping[str, int], *, batch: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.concurrency = concurrency
        self._batch = batch
        self._settings = dict(queues)
        self._limits = dict(queues)
        self._clock = clock
        self._running: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._running_total = 0
        self._resting: dict[str, float] = {}
        self._ends: Counter[str] = Counter()
        self._pace: dict[str, float] = {}
        self._counted_at = clock()

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self._settings)

    def control(self, limits: Mapping[str, int]) -> None:
        """Obey the queue control table: its concurrency where it names one, else the worker's own."""
        self._limits = self._settings | {queue: limit for queue, limit in limits.items() if queue in self._settings}

    def rest(self, queue: str, seconds: float) -> None:
        """Start nothing of this queue for a while: what it calls is saturated."""
        self._resting[queue] = self._clock() + seconds

    def may_start(self, queue: str) -> bool:
        if self._running_total >= self.concurrency or self._running[queue] >= self._limits[queue]:
            return False
        return not self._resting or not self._rests(queue)

    def holds(self, queue: str, jobs: int) -> None:
        self._waiting[queue] += jobs

    def starts(self, queue: str) -> None:
        self._waiting[queue] -= 1
        self._running[queue] += 1
        self._running_total += 1

    def ends(self, queue: str) -> None:
        self._running[queue] -= 1
        self._running_total -= 1
        self._ends[queue] += 1

    def wanted(self) -> dict[str, int]:
        """Return how many jobs of each queue can be started now or will be soon; none of a queue that has enough."""
        self._count_pace()
        wanted = {}
        room = self._batch
        free_in_all = max(0, self.concurrency - self._running_total)
        for queue, limit in self._limits.items():
            if self._rests(queue):
                continue
            waiting = self._waiting[queue]
            ahead = min(self._batch, int(self._pace.get(queue, 0.0) * AHEAD_SECONDS))
            if waiting > ahead // 2:
                continue
            free = min(limit - self._running[queue], free_in_all)
            count = min(room, max(0, free) + ahead - waiting)
            if count > 0:
                wanted[queue] = count
                room -= count
        return wanted

    def _rests(self, queue: str) -> bool:
        until = self._resting.get(queue)
        if until is not None and until <= self._clock():
            del self._resting[queue]
            return False
        return until is not None

    def _count_pace(self) -> None:
        """Only an end makes a slot free, so ends per second are how fast jobs can start."""
        now = self._clock()
        passed = now - self._counted_at
        if passed >= PACE_SECONDS:
            self._pace = {queue: ends / passed for queue, ends in self._ends.items()}
            self._ends.clear()
            self._counted_at = now
