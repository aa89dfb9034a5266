"""Claim floors: where the claims of each lane ended, so that the next one does not walk over what they left behind.

A claimed job leaves a dead entry at the front of its lane's index. Usually vacuum takes it away; while somebody holds
an old snapshot it cannot, and every claim would walk over all of them again. So a claim begins behind the last job
that was claimed. A job whose transaction committed late lies below that: wider looks find it, each within a fiftieth of
the time.
"""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from holdfast.store.claim import ClaimedJob

# How far below the floor a look reaches, in seconds: not at all; then wider ones. The last reaches everything.
REACHES = (0, 0.25, 5, 60, 315_360_000)
SHARE_OF_TIME = 1 / 50
# A look that takes no longer, in seconds, is not worth saving; nor is one at everything, up to here, worth sharing.
CHEAP = 0.0003
# Two steps, which each lane with a floor costs a narrow look, take this many seconds at least and at most: a look at
# everything that takes no longer than all of them is not worth saving either.
LANE_SECONDS = (0.00004, 0.0002)
SHARED_FROM = 0.01
# A claim that does not see all windows leaves its floor below the first job that is due, which may be one that it did
# not see. After so many claims it has seen every window, and somebody keeps that job.
STEPS_AT_MOST = 16
MOST_LANES = 200
# A lease whose row was locked when a pass came by is met again while it lies within this much of the last pass.
REAP_REACH = timedelta(seconds=15)
REAP_WHOLE_SPACING = 60.0
_NOWHERE = "-infinity"
_PLACE: Callable[[ClaimedJob], tuple[datetime, int]] = attrgetter("available_at", "id")


class Lane(NamedTuple):
    """What shares a floor, in the order of the index."""

    queue: str
    kind: str
    priority: int


_LANE: Callable[[ClaimedJob], tuple[str, str, int]] = attrgetter("queue", "kind", "priority")


class Floors:
    """The floors of one connection to one database. Forget them when the connection is lost."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` only spaces the looks; what is due is PostgreSQL's to say."""
        self._clock = clock
        self._floors: dict[Lane, tuple[datetime, int]] = {}
        """The lane that was claimed from last stands last."""
        self._begins: dict[Lane, tuple[tuple[datetime, int], int]] = {}
        """The first job of a lane that was not wholly seen, and in how many claims it was that one."""
        self.promoted: tuple[datetime, int] | None = None
        """Where the last promotion of scheduled jobs ended."""
        self._due = [0.0] * len(REACHES)
        self._cost = [0.0] * len(REACHES)

    def lanes(
        self, reach: float, queues: Collection[str], kinds: Collection[str] | None
    ) -> list[tuple[Lane, tuple[datetime, int]]]:
        """Return the lanes of these queues and kinds that a look must not walk over, and their floors, sorted."""
        if reach == REACHES[-1] and 0 < self._cost[-1] < SHARED_FROM:
            return []
        return sorted(
            (lane, floor)
            for lane, floor in self._floors.items()
            if lane.queue in queues and (kinds is None or lane.kind in kinds)
        )

    def reach(self) -> float:
        """Return how far below the floors to look this time, in seconds."""
        now = self._clock()
        for tier in reversed(range(1, len(REACHES))):
            if now >= self._due[tier]:
                return REACHES[tier]
        return REACHES[0]

    @property
    def widest_due(self) -> float:
        """When the next look will reach everything, by the clock."""
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
        """Learn from a claim: where it ended, and what looking that far cost, in seconds.

        `begins`: the first job that is due of each lane of which it saw only a part. `promoted`: the place before which
        no scheduled job is left that is due.
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
            # A scheduled job that is due and waits for its promotion will appear in its lane at its own time.
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
        # A wide look is also a narrow one; each is spaced by what itself cost the last time.
        for served in range(tier + 1):
            self._due[served] = now + (0 if self._cost[served] <= cheap else self._cost[served] / SHARE_OF_TIME)

    def _keep_below(self, begins: Mapping[Lane, tuple[datetime, int]]) -> None:
        """Let the floors of these lanes lie below the first job that is due, which the next claim may meet."""
        before, self._begins = self._begins, {}
        for lane, place in begins.items():
            last, times = before.get(lane, (place, 0))
            times = times + 1 if last == place else 1
            self._begins[lane] = (place, times)
            if times <= STEPS_AT_MOST and lane in self._floors:
                since, number = place
                self._floors[lane] = min(self._floors[lane], (since, number - 1))

    def drop(self) -> None:
        """Forget everything: after a reconnect it may be another server, with another clock."""
        self._floors.clear()
        self._begins.clear()
        self.promoted = None
        self._due = [0.0] * len(REACHES)
        self._cost = [0.0] * len(REACHES)


class ReapFloor:
    """The same for the reaper: leases end in order of time, so a pass begins a little below where the last ended."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: datetime | None = None
        self._due = 0.0

    def since(self) -> str:
        """Return from which end of lease on to look."""
        if self._since is None or self._clock() >= self._due:
            return _NOWHERE
        return (self._since - REAP_REACH).isoformat()

    def advance(self, until: datetime, *, whole: bool, took: float) -> None:
        """Learn from a pass that saw every lease ended before `until`; `whole` if it looked from the first."""
        self._since = until
        if whole:
            self._due = self._clock() + max(took / SHARE_OF_TIME, REAP_WHOLE_SPACING)

    def drop(self) -> None:
        self._since = None
        self._due = 0.0
