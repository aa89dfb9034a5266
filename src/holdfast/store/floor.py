"""Claim floors: where the claims of each lane ended, so that the next one does not walk over what they left behind.

A claimed job leaves a dead entry at the front of its lane's index. Usually vacuum takes it away; while somebody holds
an old snapshot it cannot, and every claim would walk over all of them again. So a claim begins where the last ended. A
job whose transaction committed late lies below that: wider looks find it, each within a fiftieth of the time.
"""

from __future__ import annotations

import time
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from holdfast.store.claim import ClaimedJob

PRIORITIES = 10
# How far below the floor a look reaches, in seconds: always; then wider ones. The last reaches everything.
REACHES = (0.25, 5, 60, 315_360_000)
SHARE_OF_TIME = 1 / 50
# A lease whose row was locked when a pass came by is met again while it lies within this much of the last pass.
REAP_REACH = timedelta(seconds=15)
REAP_WHOLE_SPACING = 60.0
_NOWHERE = "-infinity"
_LANE: Callable[[ClaimedJob], tuple[str, int, str]] = attrgetter("queue", "priority", "kind")
_AVAILABLE_AT: Callable[[ClaimedJob], datetime] = attrgetter("available_at")


class Floors:
    """The floors of one connection to one database. Forget them when the connection is lost."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` only spaces the looks; what is due is PostgreSQL's to say."""
        self._clock = clock
        self._floors: dict[tuple[str, int, str], datetime] = {}
        self._texts: dict[tuple[str, int, str], str] = {}
        self._due = [0.0] * len(REACHES)
        self._spacing = [0.0] * len(REACHES)

    def array(self, queues: Sequence[str], kinds: Sequence[str]) -> str:
        """Return the floors as claim_jobs reads them: by queue, then priority, then kind."""
        texts = self._texts
        lanes = [(queue, level, kind) for queue in queues for level in range(PRIORITIES) for kind in kinds]
        return f"{{{','.join([texts.get(lane, _NOWHERE) for lane in lanes])}}}"

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

    def advance(self, jobs: Sequence[ClaimedJob], *, reach: float, took: float) -> None:
        """Learn from a claim: where it ended, and what looking that far cost, in seconds."""
        lanes = set(map(_LANE, jobs))
        if len(lanes) == 1:
            ends = {lanes.pop(): max(map(_AVAILABLE_AT, jobs))}
        else:
            ends = {}
            for job in jobs:
                lane = _LANE(job)
                if lane not in ends or job.available_at > ends[lane]:
                    ends[lane] = job.available_at
        for lane, end in ends.items():
            if lane not in self._floors or end > self._floors[lane]:
                self._floors[lane] = end
                self._texts[lane] = end.isoformat()
        now = self._clock()
        tier = REACHES.index(reach)
        self._spacing[tier] = took / SHARE_OF_TIME
        # A wide look is also a narrow one; each is spaced by what itself cost the last time.
        for served in range(tier + 1):
            self._due[served] = now + self._spacing[served]

    def drop(self) -> None:
        """Forget everything: after a reconnect it may be another server, with another clock."""
        self._floors.clear()
        self._texts.clear()
        self._due = [0.0] * len(REACHES)
        self._spacing = [0.0] * len(REACHES)


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
