"""Claim floors: where the claims of each lane ended, so that the next claim does not scan dead index entries again.

A claimed job leaves a dead entry at the front of its lane's index. Vacuum usually removes it, but not while a
transaction holds an old snapshot; every claim would then scan all dead entries again. So a claim starts behind the last
claimed job. A job whose transaction committed late lies below that floor: wider scans find it, each limited to a
fiftieth of the time.
"""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from holdfast._store.claimed_job import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from holdfast._store.claimed_job import ClaimedJob

# How far below the floor each kind of scan reaches, in seconds: not at all, then further. The last covers everything.
REACHES = (0, 0.25, 5, 60, 315_360_000)
SHARE_OF_TIME = 1 / 50
# In seconds: a scan that takes no longer than this is always done. Full scans cheaper than SHARED_FROM ignore floors.
CHEAP = 0.0003
# Each lane with a floor costs a narrow scan two steps, which take between these two times, in seconds. A full scan that
# takes no longer than all of them is always done.
LANE_SECONDS = (0.00004, 0.0002)
SHARED_FROM = 0.01
# A claim that does not see all windows leaves its floor below the first due job, which may be in a window that it did
# not see. After this many claims it has seen every window, so another transaction has that job locked.
STEPS_AT_MOST = 16
MOST_LANES = 200
# A lease whose row was locked during a pass is found again if it ended within this time before the last pass.
REAP_REACH = timedelta(seconds=15)
REAP_WHOLE_SPACING = 60.0
_NOWHERE = "-infinity"
_PLACE: Callable[[ClaimedJob], tuple[datetime, int]] = attrgetter("available_at", "id")


_LANE: Callable[[ClaimedJob], tuple[str, str, int]] = attrgetter("queue", "kind", "priority")


class Floors:
    """The floors of one connection to one database. Drop them when the connection is lost."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Create empty floors. `clock` only spaces the scans; PostgreSQL's clock decides which jobs are due."""
        self._clock = clock
        self._floors: dict[Lane, tuple[datetime, int]] = {}
        """The lane with the latest claim is last."""
        self._begins: dict[Lane, tuple[tuple[datetime, int], int]] = {}
        """The first due job of each lane that was seen in part, and in how many claims in a row it was that job."""
        self.promoted: tuple[datetime, int] | None = None
        """Where the last promotion of scheduled jobs ended."""
        self._due = [0.0] * len(REACHES)
        self._cost = [0.0] * len(REACHES)

    def lanes(
        self, reach: float, queues: Collection[str], kinds: Collection[str] | None
    ) -> list[tuple[Lane, tuple[datetime, int]]]:
        """Return the lanes of these queues and kinds, sorted, each with the floor at which its scan starts."""
        if reach == REACHES[-1] and 0 < self._cost[-1] < SHARED_FROM:
            return []
        return sorted(
            (lane, floor)
            for lane, floor in self._floors.items()
            if lane.queue in queues and (kinds is None or lane.kind in kinds)
        )

    def reach(self) -> float:
        """Return how far below the floors the next claim scans, in seconds."""
        now = self._clock()
        for tier in reversed(range(1, len(REACHES))):
            if now >= self._due[tier]:
                return REACHES[tier]
        return REACHES[0]

    @property
    def widest_due(self) -> float:
        """When the next full scan is due, by the clock."""
        return self._due[-1]

    def advance(
        self,
        jobs: Sequence[ClaimedJob],
        *,
        reach: float,
        took: float,
        begins: Mapping[Lane, tuple[datetime, int]] | None = None,
        promoted: tuple[datetime, int] | None = None,
    ) -> None:
        """Record where a claim ended and how many seconds its scan took.

        `begins`: the first due job of each lane of which it saw only a part. `promoted`: the place before which all due
        scheduled jobs are promoted.
        """
        self.promoted = promoted
        lanes = set(map(_LANE, jobs))
        if len(lanes) == 1:
            ends = {lanes.pop(): max(map(_PLACE, jobs))}
        else:
            ends = {}
            for job in jobs:
                lane, place = _LANE(job), _PLACE(job)
                if lane not in ends or place > ends[lane]:
                    ends[lane] = place
        for lane, end in ends.items():
            floor = max(self._floors.pop(Lane._make(lane), end), end)
            # A due scheduled job that is not promoted yet will appear in its lane at its own time.
            self._floors[Lane._make(lane)] = min(floor, (promoted[0], promoted[1] - 1)) if promoted else floor
        if begins or self._begins:
            self._keep_below(begins or {})
        for lane in (
            list(islice(self._floors, len(self._floors) - MOST_LANES)) if len(self._floors) > MOST_LANES else ()
        ):
            del self._floors[lane]
        now = self._clock()
        tier = REACHES.index(reach)
        self._cost[tier] = took
        least, most = (seconds * len(self._floors) for seconds in LANE_SECONDS)
        cheap = max(CHEAP, min(max(least, self._cost[0]), most))
        # A wide scan includes the narrower ones; each is spaced by its own last cost.
        for served in range(tier + 1):
            self._due[served] = now + (0 if self._cost[served] <= cheap else self._cost[served] / SHARE_OF_TIME)

    def _keep_below(self, begins: Mapping[Lane, tuple[datetime, int]]) -> None:
        """Keep the floors of these lanes below their first due job, so that the next claim can find it."""
        before, self._begins = self._begins, {}
        for lane, place in begins.items():
            last, times = before.get(lane, (place, 0))
            times = times + 1 if last == place else 1
            self._begins[lane] = (place, times)
            if times <= STEPS_AT_MOST and lane in self._floors:
                since, number = place
                self._floors[lane] = min(self._floors[lane], (since, number - 1))

    def drop(self) -> None:
        """Remove all floors: after a reconnect it may be another server with another clock."""
        self._floors.clear()
        self._begins.clear()
        self.promoted = None
        self._due = [0.0] * len(REACHES)
        self._cost = [0.0] * len(REACHES)


class ReapFloor:
    """The floor of the reaper: leases end in order of time, so a pass starts a little before the end of the last."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: datetime | None = None
        self._due = 0.0

    def since(self) -> str:
        """Return the end of lease from which the next pass scans."""
        if self._since is None or self._clock() >= self._due:
            return _NOWHERE
        return (self._since - REAP_REACH).isoformat()

    def advance(self, until: datetime, *, whole: bool, took: float) -> None:
        """Record a pass that saw every lease ended before `until`. `whole`: it scanned from the first lease."""
        self._since = until
        if whole:
            self._due = self._clock() + max(took / SHARE_OF_TIME, REAP_WHOLE_SPACING)

    def drop(self) -> None:
        self._since = None
        self._due = 0.0
