"""Slots: how many jobs may run at once, in total and by queue, and how many more may be held ready."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._model.duration import DAY, as_timedelta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast._model.duration import Duration
    from holdfast._model.kind import Kind
    from holdfast._model.settings import Settings


# A worker holds ready the jobs that will start within twice this many seconds at its present pace. A slow worker
# hoards nothing; a fast one claims the second half while the first runs. Urgent jobs are claimed soon.
AHEAD_SECONDS = 0.05
PACE_SECONDS = 0.02
# For a queue that starts nothing for longer than this many seconds, no jobs are held ready.
LONGEST_HELD = 1.0
MOST_SLOTS = 10_000

Number = TypeVar("Number", int, float)


@dataclass(slots=True)
class Stock:
    """The jobs of one database by queue: how many wait for a slot, have just ended, and end per second."""

    waiting: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    pace: dict[str, float] = field(default_factory=dict)


class Slots:
    """The slots of a worker, shared by all databases that it serves.

    `of` tells the databases apart. Each keeps jobs ready by its own pace: the backlog of one delays no other.
    """

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
        """`delays`: seconds that a slot of the queue rests after each job. Defaults to none.

        `groups`: the number of jobs that one slot of the queue can run in one call. Defaults to 1.
        """
        self.concurrency = concurrency
        self.batch = max(batch, *groups.values(), 0)
        """The largest number of jobs in one claim, over all queues."""
        self._groups = groups
        self._settings = dict(queues)
        self._limits = dict(queues)
        self._clock = clock
        self._running: Counter[str] = Counter()
        self._stocks: defaultdict[object, Stock] = defaultdict(Stock)
        self._running_total = 0
        self._resting: dict[str, float] = {}
        self._counted_at = clock()
        self._controls: dict[object, tuple[Mapping[str, int], Mapping[str, float]]] = {}
        self._pacing = Pacing(delays, clock)
        self.paced = bool(self._pacing)
        """Whether any queue has a rate limit or a delay. A plain flag, because it is read for every job."""
        self.closed = False
        """Whether no more jobs are wanted: suspects run apart, or will once running jobs have ended."""

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self._settings)

    def control(
        self, limits: Mapping[str, int], rates: Mapping[str, float] = MappingProxyType({}), *, of: object = None
    ) -> set[str]:
        """Apply the control table `of` a database: its concurrency and rate where set, else the worker's own.

        With several databases the strictest value applies. Return the queues with a stricter limit than before: too
        many of their jobs were claimed ahead.
        """
        self._controls[of] = limits, rates
        return self._apply_controls()

    def uncontrol(self, of: object) -> None:
        """Drop the control table `of` a database that is no longer served."""
        if self._controls.pop(of, None) is not None:
            self._apply_controls()

    def _apply_controls(self) -> set[str]:
        before = self._limits
        self._limits = self._settings | self._strictest([limits for limits, _ in self._controls.values()])
        slower = self._pacing.control(self._strictest([rates for _, rates in self._controls.values()]))
        self.paced = bool(self._pacing)
        return slower | {queue for queue, limit in self._limits.items() if limit < before[queue]}

    def rest(self, queue: str, seconds: float) -> None:
        """Start nothing of this queue for `seconds`: the service that its jobs call is saturated."""
        self._resting[queue] = self._clock() + seconds

    def openings(self) -> list[str]:
        """Return the queues that may start a job when nothing else runs."""
        return [queue for queue, limit in self._limits.items() if limit > 0 and not self._rests(queue)]

    def may_start(self, queue: str) -> bool:
        if self._running_total >= self.concurrency or self._running[queue] >= self._limits[queue]:
            return False
        if self._resting and self._rests(queue):
            return False
        if not self.paced:
            return True
        free = self._pacing.free_slots(queue, self._limits[queue] - self._running[queue])
        return free is None or free > 0

    def shut(self, queue: str) -> bool:
        """Return whether no job of this queue will start soon, whatever ends meanwhile."""
        limit = self._limits[queue]
        if limit <= 0:
            return True
        if not self._resting and not self.paced:
            return False
        if (seconds := self._opens_in(queue)) is None or seconds <= LONGEST_HELD:
            return False
        if queue in self._resting:
            return True
        free = self._pacing.free_slots(queue, limit - self._running[queue])
        return free is not None and free <= 0

    def opens_in(self, queues: Iterable[str] | None = None) -> float | None:
        """Return in how many seconds one of these queues (default: all) can start more if nothing ends. None: never."""
        waits = [self._opens_in(queue) for queue in (self._limits if queues is None else queues)]
        return min((wait for wait in waits if wait is not None), default=None)

    def holds(self, queue: str, jobs: int, *, of: object = None) -> None:
        self._stocks[of].waiting[queue] += jobs

    def starts(self, queue: str, *, of: object = None) -> None:
        self._stocks[of].waiting[queue] -= 1
        self._running[queue] += 1
        self._running_total += 1
        if self.paced:
            self._pacing.starts(queue)

    def ends(self, queue: str, jobs: int = 1, *, of: object = None) -> None:
        """Free a slot in which `jobs` jobs ran."""
        self._running[queue] -= 1
        self._running_total -= 1
        self._stocks[of].ends[queue] += jobs
        if self.paced:
            self._pacing.ends(queue)

    def forget(self, of: object) -> None:
        """Drop the stock of a database that is no longer served and has no job waiting."""
        self._stocks.pop(of, None)

    def lend(self, slots: Mapping[str, int]) -> None:
        """Stop counting this many running jobs of each queue. A negative number counts them again."""
        self._running.subtract(slots)
        self._running_total -= sum(slots.values())

    def wanted(self, *, of: object = None) -> dict[str, int]:
        """Return how many jobs of each queue can start now or soon. Queues that have enough are left out."""
        stock, stocks = self._stocks[of], self._stocks.values()
        self._count_pace()
        if self.closed:
            return {}
        free_in_all = max(0, self.concurrency - self._running_total)
        soon = sum(sum(each.pace.values()) for each in stocks) * AHEAD_SECONDS >= 1
        useful = {}
        for queue, limit in self._limits.items():
            if self._rests(queue) or limit <= 0:
                continue
            waiting = stock.waiting[queue]
            ahead = min(self.batch, int(stock.pace.get(queue, 0.0) * AHEAD_SECONDS))
            if waiting > ahead:
                continue
            others = sum(each.waiting[queue] for each in stocks) - waiting
            free = max(0, min(limit - self._running[queue], free_in_all))
            count = max(0, free * self._groups.get(queue, 1) - others) + 2 * ahead - waiting
            if count == 0 and not waiting and (soon if self._running[queue] < limit else self._frees_soon(queue)):
                # Queues and databases share the slots. One without a free slot keeps a job ready for the next.
                count = 1
            if self.paced and (paced := self._pacing.free_slots(queue, limit - self._running[queue])) is not None:
                count = min(count, paced - waiting - others)
            if count > 0:
                useful[queue] = min(count, self.batch)
        return useful

    def _frees_soon(self, queue: str) -> bool:
        return sum(stock.pace.get(queue, 0.0) for stock in self._stocks.values()) * AHEAD_SECONDS >= 1

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
        """Measure the pace: only a job that ends frees a slot, so ends per second are the rate of possible starts."""
        now = self._clock()
        passed = now - self._counted_at
        if passed >= PACE_SECONDS:
            for stock in self._stocks.values():
                stock.pace = {queue: ends / passed for queue, ends in stock.ends.items()}
                stock.ends.clear()
            self._counted_at = now


def slots_of(
    kinds: Mapping[str, Kind[..., Any]],
    settings: Settings,
    *,
    queues: Mapping[str, int] | None,
    next_job_delay: Mapping[str, Duration],
) -> Slots:
    """Return the slots of a worker. `queues`: concurrent handlers by queue. Defaults to the settings."""
    served = _checked(queues) if queues is not None else _queues(kinds, settings)
    return Slots(
        sum(served.values()) if queues is not None else settings.concurrency,
        served,
        batch=settings.batch_size,
        delays=_delays(next_job_delay, served=served),
        groups=_groups(kinds, served),
    )


def _queues(kinds: Mapping[str, Kind[..., Any]], settings: Settings) -> dict[str, int]:
    """Return every queue that a kind names, with its own limit or the worker's."""
    names = dict.fromkeys(["default", *(kind.envelope.queue for kind in kinds.values())])
    return {name: settings.queue_concurrency.get(name, settings.concurrency) for name in names}


def _checked(queues: Mapping[Any, Any]) -> dict[str, int]:
    """Return the queues, or raise if they would serve nothing."""
    example = 'queues: expected a mapping such as {"default": 10, "mail": 2}'
    if not isinstance(queues, Mapping):
        raise TypeError(f"{example}, got {type(queues).__name__}")
    if not queues:
        raise ValueError(f"{example}, got an empty one. Leave it out to serve all queues of the kinds")
    for name, slots in queues.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"{example}, got {name!r} as the name of a queue")
        if type(slots) is not int or not 1 <= slots <= MOST_SLOTS:
            raise ValueError(f"{example}, with 1 to {MOST_SLOTS} handlers at once each, got {name!r}: {slots!r}")
    return dict(queues)


def _delays(given: Mapping[str, Duration], *, served: Mapping[str, int]) -> dict[str, float]:
    for queue in given:
        if queue not in served:
            raise ValueError(f"next_job_delay: this worker serves no queue {queue}, but {', '.join(served)}")
    delays = {queue: as_timedelta(f"next_job_delay of {queue}", delay, limit=DAY) for queue, delay in given.items()}
    return {queue: delay.total_seconds() for queue, delay in delays.items()}


def _groups(kinds: Mapping[str, Kind[..., Any]], served: Mapping[str, int]) -> dict[str, int]:
    """Return how many jobs every kind of a queue takes in one call, for queues where that is more than one."""
    sizes: dict[str, list[int]] = {queue: [] for queue in served}
    for kind in kinds.values():
        sizes.setdefault(kind.envelope.queue, []).append(kind.work.batch or 1)
    return {queue: min(sizes[queue]) for queue in served if sizes[queue] and min(sizes[queue]) > 1}


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
