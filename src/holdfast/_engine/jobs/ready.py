"""The ready jobs of one database: claimed, and waiting for a slot. Their outcomes go to the finisher."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from holdfast._model.errors import AbortReason
from holdfast._model.outcome import Released

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from holdfast._engine.attempt import Attempt, ReadyLane
    from holdfast._engine.jobs.demand import Demand
    from holdfast._engine.jobs.finish import Finisher
    from holdfast._engine.jobs.held_jobs import HeldJobs
    from holdfast._engine.jobs.slots import Slots
    from holdfast._model.outcome import Outcome


class ReadyJobs:
    """The ready jobs of one database, ordered by lane, then by priority, then by claim."""

    def __init__(self, held_jobs: HeldJobs, finisher: Finisher, demand: Demand) -> None:
        self._held_jobs = held_jobs
        self._finisher = finisher
        self.held = held_jobs.held
        """The jobs of this database, from the claim until the outcome is written."""
        self.demand = demand
        self.tasks: set[asyncio.Task[None]] = set()
        """The handlers that run."""
        self.lent: set[Attempt] = set()
        """Running attempts whose slots are lent to other databases."""
        self._lanes: dict[ReadyLane, dict[int, deque[Attempt]]] = {}

    def __bool__(self) -> bool:
        """Whether any job waits."""
        return any(self._lanes.values())

    def add(self, attempt: Attempt) -> None:
        claimed = attempt.claimed
        levels = self._lanes.setdefault(lane := attempt.lane, {})
        if (waiting := levels.get(claimed.priority)) is None:
            waiting = levels[claimed.priority] = deque()
            if len(levels) > 1:
                self._lanes[lane] = dict(sorted(levels.items()))
        waiting.append(attempt)

    def take(self, slots: Slots) -> Attempt | None:
        """Take the next job of the lane whose turn it is, among those that have a slot."""
        for lane, levels in self._lanes.items():
            if levels and slots.may_start(*lane):
                level, waiting = next(iter(levels.items()))
                attempt = waiting.popleft()
                if not waiting:
                    del levels[level]
                if len(self._lanes) > 1:
                    self._lanes[lane] = self._lanes.pop(lane)
                return attempt
        return None

    def take_more(self, first: Attempt, limit: int) -> list[Attempt]:
        """Take more jobs of the same queue, priority and kind, in their order."""
        levels = self._lanes[first.lane]
        waiting = levels.get(first.claimed.priority, deque())
        more = list(islice((attempt for attempt in waiting if attempt.kind is first.kind), limit))
        if more:
            taken = set(more)
            levels[first.claimed.priority] = left = deque(attempt for attempt in waiting if attempt not in taken)
            if not left:
                del levels[first.claimed.priority]
        return more

    @property
    def lanes(self) -> list[ReadyLane]:
        """The lanes that have waiting jobs."""
        return [lane for lane, levels in self._lanes.items() if levels]

    @property
    def waiting_for_processes(self) -> int:
        """How many waiting jobs run in processes."""
        lanes = [levels for (_, in_process), levels in self._lanes.items() if in_process]
        return sum(len(waiting) for levels in lanes for waiting in levels.values())

    @property
    def queues(self) -> list[str]:
        """The queues that have waiting jobs."""
        return [*dict.fromkeys(queue for queue, _ in self.lanes)]

    def take_all(self, queues: Iterable[str]) -> list[Attempt]:
        """Remove and return all jobs of these queues. They have not started."""
        found = [self._lanes.pop((queue, apart), {}) for queue in queues for apart in (False, True)]
        return [attempt for levels in found for waiting in levels.values() for attempt in waiting]

    def take_old(self, lane: ReadyLane, since: int) -> list[Attempt]:
        """Remove and return the jobs of the lane that have waited since that check or longer."""
        old, levels = [], self._lanes[lane]
        for level, waiting in list(levels.items()):
            while waiting and waiting[0].held_since <= since:
                old.append(waiting.popleft())
            if not waiting:
                del levels[level]
        return old

    def ended(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Hand the outcome of an attempt to the finisher. None: its claim is lost."""
        # From here on it waits for the database or for another transaction; its lease is renewed meanwhile.
        attempt.deadline = None
        if attempt in self.lent:
            self.take_back_slot(attempt)
        if outcome is None:
            self._held_jobs.forget(attempt)
        else:
            attempt.outcome = outcome
            self._finisher.add(attempt)

    def give_back(self, attempts: Iterable[Attempt]) -> None:
        """Give back jobs that will not start here. Their attempts do not count."""
        for attempt in attempts:
            attempt.signal.abort(AbortReason.shutdown)
            self.ended(attempt, Released())

    def take_back_slot(self, attempt: Attempt) -> None:
        """Count the slot of an attempt again: it was lent, and the attempt has ended."""
        self.lent.discard(attempt)
        self.demand.slots.lend({attempt.claimed.queue: -1})
