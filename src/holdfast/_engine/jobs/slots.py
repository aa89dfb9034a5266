"""Slots: how many jobs may run at once, in total and by queue, and how many more may be held ready."""

from __future__ import annotations

import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._engine.jobs.pacing import Pacing
from holdfast._model.duration import DAY, as_timedelta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast._model.duration import Duration
    from holdfast._model.kind import Kind
    from holdfast._model.settings import Settings


# A worker holds ready the jobs that will start within twice this many seconds at its present pace. A slow worker
# hoards nothing; a fast one claims the second half while the first runs. Urgent jobs are claimed soon.
AHEAD_SECONDS = 0.05
# However fast it is, no more than this many in each half: an urgent job waits for the claim before it.
MOST_AHEAD = 250
# After urgent jobs overtook others, claims take no more than this many for a while. A job costs a sixth more then.
MOST_BEHIND_URGENT = 125
URGENT_SECONDS = 1.0
# Jobs that end together look like a high pace. So it is counted over at least this many seconds, and a job that ran
# longer does not count: its slot starts no other one soon.
PACE_SECONDS = 0.1
# For a queue that starts nothing for longer than this many seconds, no jobs are held ready.
LONGEST_HELD = 1.0
MOST_SLOTS = 10_000

Number = TypeVar("Number", int, float)


@dataclass(slots=True)
class Stock:
    """The jobs of one database by queue: how many wait for a slot; how many short ones ended just now, and a second."""

    waiting: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    pace: dict[str, float] = field(default_factory=dict)
    urgent_until: float = -math.inf
    """Until when more urgent jobs are expected, by the clock."""


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
        processes: int = 0,
        process_queues: frozenset[str] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`delays`: seconds that a slot of the queue rests after each job. Defaults to none.

        `groups`: the number of jobs that one slot of the queue can run in one call. Defaults to 1.
        `process_queues`: those whose jobs all run in the `processes`, so that no more of them are claimed.
        """
        self.concurrency = concurrency
        self.batch = max(batch, *groups.values(), 0)
        """The largest number of jobs in one claim, over all queues, at a low pace."""
        self._groups = groups
        self._settings = dict(queues)
        self.processes = processes
        """How many processes there are to be, less those that do not start."""
        self._process_queues = process_queues
        self._ready_processes = 0
        self._running_in_processes = 0
        self._clock = clock
        self._running: Counter[str] = Counter()
        self._stocks: defaultdict[object, Stock] = defaultdict(Stock)
        self._running_total = 0
        self._resting: dict[str, float] = {}
        self._counted_at = clock()
        self._controls: dict[object, tuple[Mapping[str, int], Mapping[str, float]]] = {}
        self._pacing = Pacing(delays, clock)
        self._limits = self._capped(self._settings)
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
        strictest = self._strictest([limits for limits, _ in self._controls.values()])
        self._limits = self._capped(self._settings | strictest)
        slower = self._pacing.control(self._strictest([rates for _, rates in self._controls.values()]))
        self.paced = bool(self._pacing)
        return slower | {queue for queue, limit in self._limits.items() if limit < before[queue]}

    def _capped(self, limits: Mapping[str, int]) -> dict[str, int]:
        caps = dict.fromkeys(self._process_queues, self.processes)
        return {queue: min(limit, caps.get(queue, limit)) for queue, limit in limits.items()}

    def use_processes(self, *, ready: int, kept: int) -> None:
        """Start as many jobs in processes as are `ready`, and claim for as many as are `kept`."""
        self._ready_processes, self.processes = ready, kept
        self._apply_controls()

    @property
    def awaits_processes(self) -> bool:
        """Whether a process will soon be ready."""
        return self._ready_processes < self.processes

    def rest(self, queue: str, seconds: float) -> None:
        """Start nothing of this queue for `seconds`: the service that its jobs call is saturated."""
        self._resting[queue] = self._clock() + seconds

    def openings(self) -> list[str]:
        """Return the queues that may start a job when nothing else runs."""
        return [queue for queue, limit in self._limits.items() if limit > 0 and not self._rests(queue)]

    def may_start(self, queue: str, in_process: bool = False) -> bool:  # noqa: FBT001, FBT002 - a lane
        if in_process and self._running_in_processes >= self._ready_processes:
            return False
        if self._running_total >= self.concurrency or self._running[queue] >= self._limits[queue]:
            return False
        if self._resting and self._rests(queue):
            return False
        if not self.paced:
            return True
        free = self._pacing.free_slots(queue, self._limits[queue] - self._running[queue])
        return free is None or free > 0

    def is_full(self, queue: str) -> bool:
        """Return whether no slot is free for a job of this queue. Safe to call from any thread."""
        return self._running_total >= self.concurrency or self._running[queue] >= self._limits.get(queue, 0)

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

    def starts(self, queue: str, *, in_process: bool = False, of: object = None) -> None:
        self._stocks[of].waiting[queue] -= 1
        self._running[queue] += 1
        self._running_total += 1
        self._running_in_processes += in_process
        if self.paced:
            self._pacing.starts(queue)

    def ends(
        self, queue: str, jobs: int = 1, *, seconds: float = 0.0, in_process: bool = False, of: object = None
    ) -> None:
        """Free a slot in which `jobs` jobs ran for `seconds`."""
        self._running[queue] -= 1
        self._running_total -= 1
        self._running_in_processes -= in_process
        if seconds < PACE_SECONDS:
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

    def limit(self, *, of: object = None) -> int:
        """Return how many jobs a claim may take over all queues: more than a batch if so many will start soon."""
        stock = self._stocks[of]
        limit = max(self.batch, min(int(sum(stock.pace.values()) * 2 * AHEAD_SECONDS), MOST_AHEAD))
        return min(limit, MOST_BEHIND_URGENT) if self._clock() < stock.urgent_until else limit

    def overtaken(self, *, of: object = None) -> None:
        """Note that urgent jobs overtook others of their queue: the next one waits for smaller claims."""
        self._stocks[of].urgent_until = self._clock() + URGENT_SECONDS

    def wanted(self, *, of: object = None) -> dict[str, int]:
        """Return how many jobs of each queue can start now or soon. Queues that have enough are left out."""
        stock, stocks = self._stocks[of], self._stocks.values()
        self._count_pace()
        if self.closed:
            return {}
        free_in_all = max(0, self.concurrency - self._running_total)
        soon = sum(sum(each.pace.values()) for each in stocks) * AHEAD_SECONDS >= 1
        most = self.limit(of=of)
        useful = {}
        for queue, limit in self._limits.items():
            if self._rests(queue) or limit <= 0:
                continue
            waiting = stock.waiting[queue]
            ahead = min(MOST_AHEAD, int(stock.pace.get(queue, 0.0) * AHEAD_SECONDS))
            if waiting > ahead:
                continue
            others = sum(each.waiting[queue] for each in stocks) - waiting
            free = max(0, min(limit - self._running[queue], free_in_all))
            count = max(0, free * self._groups.get(queue, 1) - others) + min(2 * ahead - waiting, MOST_AHEAD)
            if count == 0 and not waiting and (soon if self._running[queue] < limit else self._frees_soon(queue)):
                # Queues and databases share the slots. One without a free slot keeps a job ready for the next.
                count = 1
            if self.paced and (paced := self._pacing.free_slots(queue, limit - self._running[queue])) is not None:
                count = min(count, paced - waiting - others)
            if count > 0:
                useful[queue] = min(count, most)
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
    concurrency: int | None = None,
    next_job_delay: Mapping[str, Duration],
) -> Slots:
    """Return the slots of a worker. `queues`: concurrent handlers by queue. Defaults to the settings.

    `concurrency`: concurrent handlers in all. Defaults to the sum of `queues`, or to the settings.
    """
    served = _checked(queues) if queues is not None else _queues(kinds, settings)
    if concurrency is None:
        concurrency = sum(served.values()) if queues is not None else settings.concurrency
    named = {kind.envelope.queue for kind in kinds.values() if kind.work.in_process}
    others = {kind.envelope.queue for kind in kinds.values() if not kind.work.in_process}
    return Slots(
        concurrency,
        served,
        batch=settings.batch_size,
        delays=_delays(next_job_delay, served=served),
        groups=_groups(kinds, served),
        processes=max(1, min(_cores(), concurrency, sum(served[queue] for queue in named & served.keys()))),
        process_queues=frozenset(named - others),
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
