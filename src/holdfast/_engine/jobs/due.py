"""Due jobs: taken by a plain statement where that can decide which are next, and by the whole claim otherwise."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from holdfast._store.claim import WINDOWS, Claim, Floors, Served, Shards, Windows, claim_jobs
from holdfast._store.plain import claim_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._engine.jobs.slots import Slots
    from holdfast._engine.session import Session
    from holdfast._model.settings import Settings
    from holdfast._model.work import Lease

# After a whole claim, plain ones follow for so many seconds, or so many of them if claims are slow, but not for long:
# the next whole one looks below the floors, and learns which windows are free.
WHOLE_EVERY = 0.025
LEAST_PLAIN = 4
LONGEST_PLAIN = 0.1


class DueJobs:
    """The due jobs of one database, as one worker knows them: where its claims ended, and which windows it scans."""

    def __init__(self, session: Session, settings: Settings, slots: Slots) -> None:
        self._link = session.links.claim
        self._row = session.row
        self._leases = session.control.leases
        self.served = Served(slots.queues, self._leases)
        self.shards = Shards(settings.shard_index or 0, settings.shard_count or 1)
        self.floors = Floors()
        self._windows = Windows()
        self._whole_at = -math.inf
        """When the last whole claim ended behind which plain ones may follow, by the monotonic clock."""
        self._plain_left = 0
        """How many of them may follow it in any case."""

    async def claim(
        self, wanted: Mapping[str, int], leases: Mapping[str, Lease], *, limit: int, start: str, reach: float
    ) -> tuple[Claim, float]:
        """Claim due jobs with the whole claim. Return also for how many seconds to wait before the next one."""
        claim = await self._link.run_in_turn(
            lambda: claim_jobs(
                self._row.id,
                wanted,
                leases,
                limit=limit,
                start=start,
                served=self.served,
                floors=self.floors,
                reach=reach,
                shards=self.shards,
                windows=self._windows,
            )
        )
        self.floors.advance(
            claim.jobs, reach=reach, took=claim.looking, begins=claim.begins, turns=claim.turns, promoted=claim.promoted
        )
        if not claim.jobs and not claim.again:
            self.floors.settle()
        # Only behind a full claim more is due, and behind a key another one is likely.
        backlog = len(claim.jobs) >= min(limit, sum(wanted.values())) and not any(job.order_key for job in claim.jobs)
        self._whole_at = time.monotonic() if backlog else -math.inf
        self._plain_left = LEAST_PLAIN
        return claim, self._windows.learn(claim)

    async def claim_plain(self, wanted: Mapping[str, int], leases: Mapping[str, Lease], *, limit: int) -> Claim | None:
        """Claim due jobs with one plain statement; None: that cannot decide which are next, and has taken none."""
        if (
            time.monotonic() - self._whole_at > (LONGEST_PLAIN if self._plain_left > 0 else WHOLE_EVERY)
            or len(wanted) > 1
            or leases is not self.served.leases
            or self.shards.count > 1
            or not self._link.takes_plain
        ):
            return None
        self._plain_left -= 1
        [(queue, slots)] = wanted.items()
        most, windows = min(limit, slots), self._windows.asked_by_plain()
        statement = claim_plain(self._row.id, queue, most, served=self.served, floors=self.floors, windows=windows)
        jobs = [] if statement is None else await self._link.run(statement)
        if len(jobs) < most:
            self._whole_at = -math.inf
        if not jobs:
            return None
        if windows[0] in {0, WINDOWS}:
            self.floors.pass_by(jobs)
        else:
            self._windows.move()
        return Claim(jobs, again=True)
