"""Claiming: due jobs become ours for the length of a lease."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from holdfast.store.statement import Row, Statement, number_array, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from holdfast.lease import Lease
    from holdfast.store.floor import Floors

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
    """More may be due: the call spent its time on parking jobs of busy order keys."""


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


def claim_jobs(  # noqa: PLR0913 - one keyword per thing a claim depends on
    worker: int,
    slots: Mapping[str, int],
    leases: Mapping[str, Lease],
    *,
    floors: Floors | None = None,
    reach: float = 0,
    shards: Shards = WHOLE,
) -> Statement[Claim]:
    """Take at most `slots[queue]` jobs of each queue, of the kinds in `leases`."""
    queues, kinds = list(slots), list(leases)
    milliseconds = [lease.milliseconds for lease in leases.values()]
    return Statement(
        statements()["claim_jobs"],
        {
            "worker": worker,
            "queues": text_array(queues),
            "slots": number_array(slots.values()),
            "kinds": text_array(kinds),
            "leases": number_array(milliseconds[:1] if len(set(milliseconds)) == 1 else milliseconds),
            "floors": None if floors is None else floors.array(queues, kinds),
            "reach": f"{reach} seconds",
            "shard_from": shards.first,
            "shard_to": shards.last,
        },
        _claim,
    )


def _claim(rows: Sequence[Row]) -> Claim:
    again = bool(rows) and rows[-1][0] is None
    return Claim([ClaimedJob._make(row) for row in (rows[:-1] if again else rows)], again)
