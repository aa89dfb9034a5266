"""Claiming: due jobs become ours for the length of a lease."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from holdfast.store.floor import Lane
from holdfast.store.statement import Row, Statement, number_array, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from holdfast.lease import Lease
    from holdfast.store.floor import Floors
    from holdfast.store.window import Windows

SHARDS = 64


class ClaimedJob(NamedTuple):
    """A job that this claim holds. The first three columns of it, with the worker's id, fence every later write."""

    id: int
    token: int
    queue: str
    kind: str
    payload: str | None
    headers: str | None
    payload_version: int
    attempt: int
    max_attempts: int
    priority: int
    available_at: datetime
    chain_id: int
    order_key: str | None
    expired: bool
    """It was too late before it started: finish it as cancelled."""
    cancelled: bool
    """It was called off while it waited in its order key: finish it as cancelled."""
    young: bool
    """It was enqueued within the last ten minutes: a payload that does not fit may be for newer code."""
    has_blockers: bool = False
    """It came after other chains: `read_blockers` has how they ended."""
    blocker_failed: bool = False
    """One of them did not complete, and so this one must not run: finish it as failed."""

    def read_headers(self) -> dict[str, str]:
        headers: dict[str, str] = json.loads(self.headers) if self.headers else {}
        return headers


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim brought."""

    jobs: list[ClaimedJob]
    again: bool
    """More may be due: the call spent its time on parking jobs of busy order keys, or others had windows."""
    looking: float = 0.0
    """How many seconds it took to find what is due."""
    next_due: float | None = None
    """In how many seconds the next job is due, if no more is due than was claimed."""
    crowded: bool | None = None
    """Whether fewer windows were free than it asked for; None: it needed none."""
    begins: Mapping[Lane, tuple[datetime, int]] = field(default_factory=dict)
    """Of lanes of which it saw only some windows: the first job that is due."""
    promoted: tuple[datetime, int] | None = None
    """The place before which no scheduled job is left that is due."""


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
    """What a worker registered that it serves: it need not be sent with each claim."""

    def __init__(self, queues: Iterable[str], leases: Mapping[str, Lease]) -> None:
        self.queues = sorted(queues)
        self.leases = leases
        self.usual, self.other = _split(leases)

    def unless_all(self, queues: Collection[str]) -> list[str] | None:
        """Return these queues, sorted; None when they are those that were registered."""
        wanted = sorted(queues)
        return None if wanted == self.queues else wanted


def claim_jobs(  # noqa: PLR0913 - one keyword per thing a claim depends on
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
    """Take at most `slots[queue]` jobs of each queue, and `most` in all, of the kinds in `leases`.

    The queues have their turns in the order of their names, beginning with the first from `start` on. Where `served`
    says the same, queues and kinds are not sent. Without `windows`, as in a transaction that goes on, none are locked.
    """
    queues = sorted(queue for queue, count in slots.items() if count > 0)
    counts = [slots[queue] for queue in queues]
    usual, other = (served.usual, served.other) if served and leases is served.leases else _split(leases)
    known = served is not None and (leases is served.leases or leases.keys() == served.leases.keys())
    lanes = [] if floors is None else floors.lanes(reach, slots.keys(), None if known else leases.keys())
    width, first_window = (0, 0) if windows is None else windows.asked()
    return Statement(
        statements()["claim_jobs"],
        {
            "worker": worker,
            "queues": None if served and queues == served.queues else text_array(queues),
            "slots": number_array(counts[:1] if len(set(counts)) == 1 else counts),
            "most": sum(counts) if most is None else most,
            "start": bisect_left(queues, start) % max(len(queues), 1) + 1,
            "kinds": None if known else text_array(sorted(leases)),
            "leases": number_array([usual, *other.values()]),
            "lease_kinds": text_array(other),
            "lane_queues": text_array(lane.queue for lane, _ in lanes),
            "lane_kinds": text_array(lane.kind for lane, _ in lanes),
            "lane_levels": number_array(lane.priority for lane, _ in lanes),
            "lane_times": f"{{{','.join([since.isoformat() for _, (since, _) in lanes])}}}",
            "lane_ids": number_array(last for _, (_, last) in lanes),
            "reach": f"{reach} seconds",
            "shard_from": shards.first,
            "shard_to": shards.last,
            "windows": width,
            "first_window": first_window,
            "later_at": floors.promoted[0].isoformat() if floors and floors.promoted else None,
            "later_id": floors.promoted[1] if floors and floors.promoted else 0,
        },
        _claim,
    )


def _split(leases: Mapping[str, Lease]) -> tuple[int, dict[str, int]]:
    """Return the milliseconds that most kinds have, and those of the others."""
    milliseconds = {kind: lease.milliseconds for kind, lease in leases.items()}
    usual = Counter(milliseconds.values()).most_common(1)[0][0] if milliseconds else 0
    return usual, {kind: each for kind, each in milliseconds.items() if each != usual}


def _claim(rows: Sequence[Row]) -> Claim:
    # The last row is about the call; others without an id say where lanes begin.
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
