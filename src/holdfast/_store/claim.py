"""Claiming: takes due jobs for the length of a lease.

A claimed job leaves a dead entry at the front of its lane's index. Vacuum usually removes it, but not while a
transaction holds an old snapshot; every claim would then scan all dead entries again. So a claim starts behind the last
claimed job, at the floor of its lane. A job whose transaction committed late lies below that floor: wider scans find
it, each limited to a fiftieth of the time.

A queue's 64 shards form eight windows. A claim locks the windows that it scans, so that no two claims scan the same one
at once. A worker that is alone takes all windows and sees the queue in order; with others it asks for fewer.
"""

from __future__ import annotations

import json
import random
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.statement import Row, Statement, number_array, statement, text_array

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from holdfast._model.work import Lease


SHARDS = 64
WINDOWS = 8
# After FRUITLESS claims in a row that found only windows of others, another process may hold them without claiming: the
# next WITHOUT claims lock no windows.
FRUITLESS = 3
WITHOUT = 16
# The pause between two such claims, in seconds: least and most.
PAUSE = (0.001, 0.005)
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
_PLACE: Callable[[ClaimedJob], tuple[datetime, int]] = attrgetter("available_at", "id")
_LANE: Callable[[ClaimedJob], tuple[str, str, int]] = attrgetter("queue", "kind", "priority")


class ClaimedJob(NamedTuple):
    """A claimed job. Every later write is fenced by its first three columns and the worker's id."""

    id: int
    token: int
    queue: str
    kind: str
    payload: str | None
    headers: str | None
    payload_version: int
    attempt: int
    max_attempts: int | None
    priority: int
    available_at: datetime
    chain_id: int
    order_key: str | None
    """Its order key, the first of its limits, or its tenant: a plain claim may not take the next such job."""
    expired: bool
    """It expired before it started: finish it as cancelled."""
    cancelled: bool
    """It was cancelled while it waited for its order key: finish it as cancelled."""
    young: bool
    """It was enqueued within the last ten minutes, so a payload that is not valid may be for newer code."""
    has_blockers: bool = False
    """It waited for other chains: `read_blockers` returns how they ended."""
    blocker_failed: bool = False
    """One of them did not complete and so this job must not run: finish it as failed."""
    created: int | None = None
    """When it was enqueued, in microseconds since 1970: after a restore another job may get its id, not its time."""
    waited: int = 0  # for how many microseconds it was due before it was claimed

    def read_headers(self) -> dict[str, str]:
        return dict(json.loads(self.headers)) if self.headers else {}


class Lane(NamedTuple):
    """The jobs that share a floor, in the order of the index."""

    queue: str
    kind: str
    priority: int


@dataclass(frozen=True, slots=True)
class Claim:
    jobs: list[ClaimedJob]
    again: bool
    """More jobs may be due: the call spent its time on parking jobs of busy order keys, or others held windows."""
    looking: float = 0.0
    """How many seconds the search for due jobs took."""
    next_due: float | None = None
    """Seconds until the next job is due, if all due jobs were claimed."""
    crowded: bool | None = None
    """Whether fewer windows were free than requested; None: it needed none."""
    begins: Mapping[Lane, tuple[datetime, int]] = field(default_factory=dict)
    """The first due job of each lane of which it saw only some windows, or that takes turns."""
    turns: Collection[Lane] = ()
    """Those of them that may take turns: their first job is not the next."""
    promoted: tuple[datetime, int] | None = None
    """The place before which all due scheduled jobs are promoted."""


@dataclass(frozen=True, slots=True)
class Shards:
    """The part of all jobs that worker `index` of `count` claims."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not (1 <= self.count <= SHARDS and 0 <= self.index < self.count):
            raise ValueError(f"shard {self.index} of {self.count}: the count is 1 to {SHARDS}, the index below it")

    @property
    def first(self) -> int:
        return SHARDS * self.index // self.count

    @property
    def last(self) -> int:
        return SHARDS * (self.index + 1) // self.count - 1


WHOLE = Shards()


class Served:
    """The queues and kinds that a worker registered: they need not be sent with each claim."""

    def __init__(self, queues: Iterable[str], leases: Mapping[str, Lease]) -> None:
        self.queues = sorted(queues)
        self.leases = leases
        self.usual, self.other = split_leases(leases)

    def unless_all(self, queues: Collection[str]) -> list[str] | None:
        """Return these queues, sorted; None when they equal the registered ones."""
        wanted = sorted(queues)
        return None if wanted == self.queues else wanted


def claim_jobs(  # noqa: PLR0913 - one keyword per input of a claim
    worker: int,
    slots: Mapping[str, int],
    leases: Mapping[str, Lease],
    *,
    limit: int | None = None,
    start: str = "",
    served: Served | None = None,
    floors: Floors | None = None,
    reach: float = 0,
    shards: Shards = WHOLE,
    windows: Windows | None = None,
) -> Statement[Claim]:
    """Claim at most `slots[queue]` jobs of each queue, and `limit` in all, of the kinds in `leases`.

    Queues are visited in the order of their names, from the first that is not before `start`. Queues and kinds are not
    sent if they equal those in `served`. Without `windows`, as in a transaction that stays open, no window is locked.
    """
    queues = sorted(queue for queue, count in slots.items() if count > 0)
    counts = [slots[queue] for queue in queues]
    usual, other = (served.usual, served.other) if served and leases is served.leases else split_leases(leases)
    known = served is not None and (leases is served.leases or leases.keys() == served.leases.keys())
    lanes = [] if floors is None else floors.lanes(reach, slots.keys(), None if known else leases.keys())
    width, first_window = (0, 0) if windows is None else windows.asked()
    return statement(
        "claim_jobs",
        _claim,
        worker=worker,
        queues=None if served and queues == served.queues else text_array(queues),
        slots=number_array(counts[:1] if len(set(counts)) == 1 else counts),
        limit=sum(counts) if limit is None else limit,
        start=bisect_left(queues, start) % max(len(queues), 1) + 1,
        kinds=None if known else text_array(sorted(leases)),
        leases=number_array([usual, *other.values()]),
        lease_kinds=text_array(other),
        lane_queues=text_array([lane.queue for lane, _ in lanes]),
        lane_kinds=text_array([lane.kind for lane, _ in lanes]),
        lane_levels=number_array([lane.priority for lane, _ in lanes]),
        lane_times=f"{{{','.join([since.isoformat() for _, (since, _) in lanes])}}}",
        lane_ids=number_array([last for _, (_, last) in lanes]),
        reach=f"{reach} seconds",
        shard_from=shards.first,
        shard_to=shards.last,
        windows=width,
        first_window=first_window,
        later_at=floors.promoted[0].isoformat() if floors and floors.promoted else None,
        later_id=floors.promoted[1] if floors and floors.promoted else 0,
    )


def split_leases(leases: Mapping[str, Lease]) -> tuple[int, dict[str, int]]:
    """Return the most common lease in milliseconds, and the leases of the other kinds."""
    milliseconds = {kind: lease.milliseconds for kind, lease in leases.items()}
    usual = Counter(milliseconds.values()).most_common(1)[0][0] if milliseconds else 0
    return usual, {kind: each for kind, each in milliseconds.items() if each != usual}


class _Call(NamedTuple):
    """The last row of a claim, which is about the call, in the columns behind those of a job."""

    again: bool
    looking: int
    next_due: int | None
    crowded: bool | None
    promoted_at: datetime
    promoted_id: int


_COLUMNS, _TOKEN = len(ClaimedJob._fields), ClaimedJob._fields.index("token")


def _claim(rows: Sequence[Row]) -> Claim:
    call = _Call._make(rows[-1][_COLUMNS:])
    # Without a token: the first due job of a lane that was seen in part.
    jobs = [ClaimedJob._make(row[:_COLUMNS]) for row in rows[:-1] if row[_TOKEN] is not None]
    begins = [ClaimedJob._make(row[:_COLUMNS]) for row in rows[:-1] if row[_TOKEN] is None]
    return Claim(
        jobs=jobs,
        again=call.again,
        looking=call.looking / 1_000_000,
        next_due=None if call.next_due is None else call.next_due / 1_000_000,
        crowded=call.crowded,
        begins={Lane._make(_LANE(job)): (job.available_at, job.id) for job in begins},
        turns={Lane._make(_LANE(job)) for job in begins if job.expired},
        promoted=(call.promoted_at, call.promoted_id),
    )


class Windows:
    """The number of windows that one worker asks for, and the first of them."""

    def __init__(self, width: int = WINDOWS, first: int | None = None) -> None:
        """Ask for `width` windows at first: 1, 2, 4 or 8. Default: 8. `first`: default random."""
        self._width = width
        self._first = random.randrange(WINDOWS) if first is None else first  # noqa: S311 - only spreads load
        self._fruitless = 0
        self._without = 0

    def asked(self) -> tuple[int, int]:
        """Return how many windows the next claim asks for, and the first of them; 0: it locks none."""
        return (0, 0) if self._without else (self._width, self._first // self._width * self._width)

    def asked_by_plain(self) -> tuple[int, int]:
        """Return the same for a plain claim. It scans all windows, or one: the first free one from there on."""
        return self.asked() if self._width == WINDOWS or self._without else (1, self._first)

    def move(self, windows: int = 1) -> None:
        """Start the next claim where this one ended, so that at most eight claims see all windows."""
        self._first = (self._first // windows + 1) * windows % WINDOWS

    def learn(self, claim: Claim) -> float:
        """Adapt to the result of a claim; return how many seconds to wait before the next one."""
        self._without = max(0, self._without - 1)
        if claim.crowded is not None:
            self.move(self._width)
            self._width = max(1, self._width // 2) if claim.crowded else min(WINDOWS, self._width * 2)
        if claim.jobs or not claim.again:
            self._fruitless = 0
            return 0.0
        self._fruitless += 1
        if self._fruitless >= FRUITLESS:
            self._fruitless, self._without = 0, WITHOUT
        return random.uniform(*PAUSE)  # noqa: S311 - only spreads load


class Floors:
    """The floors of one connection to one database. Drop them when the connection is lost."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Create empty floors. `clock` only spaces the scans; PostgreSQL's clock decides which jobs are due."""
        self._clock = clock
        self._floors: dict[Lane, tuple[datetime, int]] = {}
        """The lane with the latest claim is last."""
        self._begins: dict[Lane, tuple[tuple[datetime, int], int]] = {}
        """The first due job of each lane that was seen in part, and in how many claims in a row it was that job."""
        self._noted: dict[Lane, tuple[datetime, int]] = {}
        """The last job of each lane that was claimed by its name. Jobs before it may be pending."""
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

    def advance(  # noqa: PLR0913 - one keyword per fact about a claim
        self,
        jobs: Sequence[ClaimedJob],
        *,
        reach: float,
        took: float,
        begins: Mapping[Lane, tuple[datetime, int]] | None = None,
        turns: Collection[Lane] = (),
        promoted: tuple[datetime, int] | None = None,
    ) -> None:
        """Record where a claim ended and how many seconds its scan took.

        `begins`: the first due job of each lane of which it saw only a part; `turns`: those that take turns.
        `promoted`: the place before which all due scheduled jobs are promoted.
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
            self._keep_below(begins or {}, turns)
        for lane in list(islice(self._floors, max(len(self._floors) - MOST_LANES, 0))):
            del self._floors[lane]
        now = self._clock()
        tier = REACHES.index(reach)
        self._cost[tier] = took
        least, limit = (seconds * len(self._floors) for seconds in LANE_SECONDS)
        cheap = max(CHEAP, min(max(least, self._cost[0]), limit))
        # A wide scan includes the narrower ones; each is spaced by its own last cost.
        for served in range(tier + 1):
            self._due[served] = now + (0 if self._cost[served] <= cheap else self._cost[served] / SHARE_OF_TIME)

    def pass_by(self, jobs: Iterable[ClaimedJob]) -> None:
        """Begin behind these jobs: nothing that is due is left before them."""
        self.note(jobs)
        self.settle()

    def note(self, jobs: Iterable[ClaimedJob]) -> None:
        """Remember jobs that were claimed by their names."""
        for job in jobs:
            lane = Lane._make(_LANE(job))
            self._noted[lane] = max(self._noted.get(lane, _PLACE(job)), _PLACE(job))

    def settle(self) -> None:
        """Pass the jobs that were claimed by their names: a claim has seen since that nothing else was due."""
        for lane, place in self._noted.items():
            self._floors[lane] = max(self._floors.pop(lane, place), place)
        self._noted.clear()

    def _keep_below(self, begins: Mapping[Lane, tuple[datetime, int]], turns: Collection[Lane]) -> None:
        """Keep the floors of these lanes below their first due job, so that the next claim can find it."""
        before, self._begins = self._begins, {}
        for lane, place in begins.items():
            last, times = before.get(lane, (place, 0))
            times = times + 1 if last == place and lane not in turns else 1
            self._begins[lane] = (place, times)
            if times <= STEPS_AT_MOST and lane in self._floors:
                self._floors[lane] = min(self._floors[lane], (place[0], place[1] - 1))

    def drop(self) -> None:
        """Remove all floors: after a reconnect it may be another server with another clock."""
        self._floors.clear()
        self._noted.clear()
        self._begins.clear()
        self.promoted = None
        self._due = [0.0] * len(REACHES)
        self._cost = [0.0] * len(REACHES)
