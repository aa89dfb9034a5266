"""Claiming: takes due jobs for the length of a lease."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast._store.claimed_job import Claim, ClaimedJob, Lane
from holdfast._store.statement import Row, Statement, number_array, statement, text_array

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from holdfast._model.work import Lease
    from holdfast._store.claim_floor import Floors
    from holdfast._store.claim_window import Windows

SHARDS = 64


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
        self.usual, self.other = _split(leases)

    def unless_all(self, queues: Collection[str]) -> list[str] | None:
        """Return these queues, sorted; None when they equal the registered ones."""
        wanted = sorted(queues)
        return None if wanted == self.queues else wanted


def claim_jobs(  # noqa: PLR0913 - one keyword per input of a claim
    worker: int,
    slots: Mapping[str, int],
    leases: Mapping[str, Lease],
    *,
    most: int | None = None,
    start: str = "",
    served: Served | None = None,
    floors: Floors | None = None,
    reach: float = 0,
    shards: Shards = WHOLE,
    windows: Windows | None = None,
) -> Statement[Claim]:
    """Claim at most `slots[queue]` jobs of each queue, and `most` in all, of the kinds in `leases`.

    Queues are visited in the order of their names, from the first that is not before `start`. Queues and kinds are not
    sent if they equal those in `served`. Without `windows`, as in a transaction that stays open, no window is locked.
    """
    queues = sorted(queue for queue, count in slots.items() if count > 0)
    counts = [slots[queue] for queue in queues]
    usual, other = (served.usual, served.other) if served and leases is served.leases else _split(leases)
    known = served is not None and (leases is served.leases or leases.keys() == served.leases.keys())
    lanes = [] if floors is None else floors.lanes(reach, slots.keys(), None if known else leases.keys())
    width, first_window = (0, 0) if windows is None else windows.asked()
    return statement(
        "claim_jobs",
        _claim,
        worker=worker,
        queues=None if served and queues == served.queues else text_array(queues),
        slots=number_array(counts[:1] if len(set(counts)) == 1 else counts),
        most=sum(counts) if most is None else most,
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


def _split(leases: Mapping[str, Lease]) -> tuple[int, dict[str, int]]:
    """Return the most common lease in milliseconds, and the leases of the other kinds."""
    milliseconds = {kind: lease.milliseconds for kind, lease in leases.items()}
    usual = Counter(milliseconds.values()).most_common(1)[0][0] if milliseconds else 0
    return usual, {kind: each for kind, each in milliseconds.items() if each != usual}


def _claim(rows: Sequence[Row]) -> Claim:
    # The last row describes the call; other rows without an id contain the first due job of a lane.
    call = dict(zip(ClaimedJob._fields, rows[-1], strict=True))
    taken, begins = rows[:-1], {}
    if call["has_blockers"]:
        marks = [ClaimedJob._make(row) for row in taken if row[0] is None]
        taken = [row for row in taken if row[0] is not None]
        begins = {Lane(mark.queue, mark.kind, mark.priority): (mark.available_at, mark.token) for mark in marks}
    return Claim(
        jobs=list(map(ClaimedJob._make, taken)),
        again=call["expired"],
        looking=call["token"] / 1_000_000,
        next_due=None if call["chain_id"] is None else call["chain_id"] / 1_000_000,
        crowded=call["cancelled"],
        begins=begins,
        promoted=(call["available_at"], int(call["order_key"])),
    )
