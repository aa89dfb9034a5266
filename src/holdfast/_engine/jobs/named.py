"""The jobs that notifications name: a worker that sleeps claims exactly these, and sleeps on."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from typing import TYPE_CHECKING

from holdfast._store.plain import claim_named

if TYPE_CHECKING:
    from holdfast._engine.jobs.demand import Demand
    from holdfast._engine.session import Session
    from holdfast._store.claim import ClaimedJob, Shards

# So many jobs within so many seconds: polling is cheaper than names. Commits that notify wait for each other.
MANY_JOBS = 30
MANY_SECONDS = 0.1
# A job that was named to another worker too is claimed here if it is still pending after this many seconds, or at most
# twice as many: that worker may have been killed.
LATE_SECONDS = 0.05

_NAME = re.compile(r"(job|late) ([0-9]{1,18})")


class NamedJobs:
    """The jobs whose names one worker received. A name is a hint: the statement decides."""

    def __init__(self, session: Session, demand: Demand, shards: Shards) -> None:
        self._link = session.links.claim
        self._row = session.row
        self._control = session.control
        self._demand = demand
        self._shards = shards
        self._first: list[int] = []
        """Named to this worker alone: it claims them now."""
        self._left: list[int] = []
        """Named to another worker too, long enough ago."""
        self._ripening: list[int] = []
        self._young: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._claimed_at: deque[float] = deque(maxlen=MANY_JOBS)

    def __bool__(self) -> bool:
        """Whether there are jobs to claim now."""
        return bool(self._first or self._left)

    def note(self, text: str) -> bool:
        """Note the job that a notification names. Return False if it names none."""
        if (name := _NAME.fullmatch(text)) is None:
            return False
        if name[1] == "late":
            self._young.append(int(name[2]))
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(LATE_SECONDS, self._ripen)
        else:
            self._first.append(int(name[2]))
            self._demand.woken.set()
        return True

    def count(self, jobs: int) -> None:
        """Count jobs that were claimed now, by their names or not."""
        self._claimed_at.extend([time.monotonic()] * min(jobs, MANY_JOBS))

    @property
    def many(self) -> bool:
        """Whether the last jobs came so fast that polling is cheaper."""
        return len(self._claimed_at) == MANY_JOBS and self._claimed_at[-1] - self._claimed_at[0] < MANY_SECONDS

    async def claim(self) -> tuple[list[ClaimedJob], bool]:
        """Claim them. Return also whether nothing else was to be done: otherwise query for due jobs."""
        first, left = self._first, self._left
        self._first, self._left = [], []
        wanted = self._demand.wanted()
        if (
            self.many
            or not self._link.takes_plain
            or len(first) + len(left) > min(wanted.values(), default=0)
            # The jobs of some queues need another lease, and a name does not contain the queue.
            or not self._control.queue_leases.keys().isdisjoint(wanted)
        ):
            return [], not first
        ids, leases = [*first, *left], self._control.leases
        jobs = await self._link.run_in_turn(lambda: claim_named(self._row.id, ids, wanted, leases, self._shards))
        return jobs, {job.id for job in jobs}.issuperset(first)

    def _ripen(self) -> None:
        self._left += self._ripening
        self._ripening, self._young = self._young, []
        self._timer = asyncio.get_running_loop().call_later(LATE_SECONDS, self._ripen) if self._ripening else None
        if self._left:
            self._demand.woken.set()
