"""Claimed jobs that wait for a slot."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.jobs.slots import Slots
    from holdfast._model.job import Outcome

    OnEnd: TypeAlias = Callable[[Attempt, Outcome | None], None]


class ReadyJobs:
    """The ready jobs of one database, ordered by queue, then by priority, then by claim."""

    def __init__(self, ended: OnEnd, give_back: Callable[[Sequence[Attempt]], None]) -> None:
        """`ended(attempt, outcome)`: a handler has ended; `give_back(attempts)`: these will not start here."""
        self.ended = ended
        self.give_back = give_back
        self._queues: dict[str, dict[int, deque[Attempt]]] = {}

    def __bool__(self) -> bool:
        """Whether any job waits."""
        return any(self._queues.values())

    def add(self, attempt: Attempt) -> None:
        claimed = attempt.claimed
        levels = self._queues.setdefault(claimed.queue, {})
        if (waiting := levels.get(claimed.priority)) is None:
            waiting = levels[claimed.priority] = deque()
            if len(levels) > 1:
                self._queues[claimed.queue] = dict(sorted(levels.items()))
        waiting.append(attempt)

    def take(self, slots: Slots) -> Attempt | None:
        """Take the next job of the queue whose turn it is."""
        for queue, levels in self._queues.items():
            if levels and slots.may_start(queue):
                level, waiting = next(iter(levels.items()))
                attempt = waiting.popleft()
                if not waiting:
                    del levels[level]
                if len(self._queues) > 1:
                    self._queues[queue] = self._queues.pop(queue)
                return attempt
        return None

    def take_more(self, first: Attempt, most: int) -> list[Attempt]:
        """Take more jobs of the same queue, priority and kind, in their order."""
        levels = self._queues[first.claimed.queue]
        waiting = levels.get(first.claimed.priority, deque())
        more = list(islice((attempt for attempt in waiting if attempt.kind is first.kind), most))
        if more:
            taken = set(more)
            levels[first.claimed.priority] = left = deque(attempt for attempt in waiting if attempt not in taken)
            if not left:
                del levels[first.claimed.priority]
        return more

    @property
    def queues(self) -> list[str]:
        """The queues that have waiting jobs."""
        return [queue for queue, levels in self._queues.items() if levels]

    def take_all(self, queues: Iterable[str]) -> list[Attempt]:
        """Remove and return all jobs of these queues. They have not started."""
        found = [self._queues.pop(queue, {}) for queue in queues]
        return [attempt for levels in found for waiting in levels.values() for attempt in waiting]

    def take_old(self, queue: str, since: int) -> list[Attempt]:
        """Remove and return the jobs of the queue that have waited since that check or longer."""
        old, levels = [], self._queues[queue]
        for level, waiting in list(levels.items()):
            while waiting and waiting[0].held_since <= since:
                old.append(waiting.popleft())
            if not waiting:
                del levels[level]
        return old
