"""Claiming by name: takes the jobs that notifications name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._store.claim import WHOLE, ClaimedJob, Shards, split_leases
from holdfast._store.statement import Statement, many, number_array, statement, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast._model.work import Lease


def claim_named(
    worker: int, ids: Sequence[int], queues: Iterable[str], leases: Mapping[str, Lease], shards: Shards = WHOLE
) -> Statement[list[ClaimedJob]]:
    """Claim those of these jobs that are due, plain, and of these queues and of the kinds in `leases`.

    Whether they are next in their queues is not asked. A plain job has no order key and no limits, and is no suspect.
    """
    usual, other = split_leases(leases)
    return statement(
        "claim_named",
        many(ClaimedJob),
        worker=worker,
        ids=number_array(ids),
        queues=text_array(queues),
        kinds=text_array(leases),
        leases=number_array([usual, *other.values()]),
        lease_kinds=text_array(other),
        shard_from=shards.first,
        shard_to=shards.last,
    )
