"""Slots: how many jobs may run at once, in all and by queue, and how many more may be held ready."""

from __future__ import annotations

import time
from collections import Counter
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from holdfast.engine.pacing import Pacing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# Held ready is what will start within twice this much time at the present pace: a slow worker hoards nothing, and an
# urgent job is claimed soon. The second half is claimed while the first runs, so that a quick worker need not wait.
AHEAD_SECONDS = 0.05
PACE_SECONDS = 0.02

Number = TypeVar("Number", int, float)


class Slots:
    """Shared by all databases that a worker serves."""

    def __init__(  # noqa: PLR0913 - one keyword per rule
        self,
        concurrency: int,
        queues: Mapping[str, int],
        *,
        batch: int,
        delays: Mapping[str, float] = MappingProxyType({}),
        groups: Mapping[str, int] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`delays`: for how many seconds a slot of the queue rests after each job.

        `groups`: how many jobs one slot of the queue can run in one call.
        """
        self.concurrency = concurrency
        self._batch = max(batch, *groups.values(), 0)
        self._groups = groups
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
        self._controls: dict[object, tuple[Mapping[str, int], Mapping[str, float]]] = {}
        self._pacing = Pacing(delays, clock)
        self.paced = bool(self._pacing)
        """Whether a free slot may be no reason to start; a flag, since it is asked for every job."""

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self._settings)

    def control(
        self, limits: Mapping[str, int], rates: Mapping[str, float] = MappingProxyType({}), *, of: object = None
    ) -> None:
        """Obey the control table `of` a database: its concurrency and rate where it names one, else the worker's own.

        Of several databases the strictest holds.
        """
        self._controls[of] = limits, rates
        self._limits = self._settings | self._strictest([limits for limits, _ in self._controls.values()])
        self._pacing.control(self._strictest([rates for _, rates in self._controls.values()]))
        self.paced = bool(self._pacing)

    def rest(self, queue: str, seconds: float) -> None:
        """Start nothing of this queue for a while: what it calls is saturated."""
        self._resting[queue] = self._clock() + seconds

    def may_start(self, queue: str) -> bool:
        if self._running_total >= self.concurrency or self._running[queue] >= self._limits[queue]:
            return False
        if self._resting and self._rests(queue):
            return False
        if not self.paced:
            return True
        room = self._pacing.room(queue, self._limits[queue] - self._running[queue])
        return room is None or room > 0

    def opens_in(self, queues: Iterable[str] | None = None) -> float | None:
        """In how many seconds one of these queues (default: all) may start more with nothing ending; None: never."""
        waits = [self._opens_in(queue) for queue in (self._limits if queues is None else queues)]
        return min((wait for wait in waits if wait is not None), default=None)

    def holds(self, queue: str, jobs: int) -> None:
        self._waiting[queue] += jobs

    def starts(self, queue: str) -> None:
        self._waiting[queue] -= 1
        self._running[queue] += 1
        self._running_total += 1
        if self.paced:
            self._pacing.starts(queue)

    def ends(self, queue: str, jobs: int = 1) -> None:
        """Free a slot in which so many jobs ran."""
        self._running[queue] -= 1
        self._running_total -= 1
        self._ends[queue] += jobs
        if self.paced:
            self._pacing.ends(queue)

    def wanted(self) -> dict[str, int]:
        """Return how many jobs of each queue can be started now or will be soon; none of a queue that has enough."""
        self._count_pace()
        free_in_all = max(0, self.concurrency - self._running_total)
        # Slots become free for all queues alike: one that has none of its own has one job ready for the next.
        soon = sum(self._pace.values()) * AHEAD_SECONDS >= 1
        useful = {}
        for queue, limit in self._limits.items():
            if self._rests(queue):
                continue
            waiting = self._waiting[queue]
            ahead = min(self._batch, int(self._pace.get(queue, 0.0) * AHEAD_SECONDS))
            if waiting > ahead:
                continue
            free = max(0, min(limit - self._running[queue], free_in_all))
            count = free * self._groups.get(queue, 1) + 2 * ahead - waiting
            if count == 0 and soon and not waiting and self._running[queue] < limit:
                count = 1
            if self.paced and (paced := self._pacing.room(queue, limit - self._running[queue])) is not None:
                count = min(count, paced - waiting)
            if count > 0:
                useful[queue] = count
        return _shared(self._batch, useful)

    def _strictest(self, controls: Sequence[Mapping[str, Number]]) -> dict[str, Number]:
        named = [control.keys() & self._settings.keys() for control in controls]
        return {queue: min(control[queue] for control in controls if queue in control) for queue in set().union(*named)}

    def _rests(self, queue: str) -> bool:
        until = self._resting.get(queue)
        if until is not None and until <= self._clock():
            del self._resting[queue]
            return False
        return until is not None

    def _opens_in(self, queue: str) -> float | None:
        if self._resting and self._rests(queue):
            return self._resting[queue] - self._clock()
        return self._pacing.opens_in(queue)

    def _count_pace(self) -> None:
        """Only an end makes a slot free, so ends per second are how fast jobs can start."""
        now = self._clock()
        passed = now - self._counted_at
        if passed >= PACE_SECONDS:
            self._pace = {queue: ends / passed for queue, ends in self._ends.items()}
            self._ends.clear()
            self._counted_at = now


def _shared(room: int, useful: dict[str, int]) -> dict[str, int]:
    """Give each what is useful to it, as far as there is room: who needs little has it, the others share the rest."""
    given = {}
    for place, (queue, count) in enumerate(sorted(useful.items(), key=itemgetter(1))):
        given[queue] = min(count, -(-room // (len(useful) - place)))
        room -= given[queue]
    return {queue: count for queue, count in given.items() if count}
