"""Plain claims: one statement, prepared once, for jobs about which nothing has to be decided.

They need a session with `pin_plans`. The rest is for `claim_jobs` to decide.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from holdfast._store.claim import WHOLE, ClaimedJob, Shards, split_leases
from holdfast._store.statement import Statement, many, number_array, statement, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from holdfast._model.work import Lease
    from holdfast._store.claim import Floors, Lane, Served

# More ranges than this cost more than the whole claim, which walks over them.
MOST_RANGES = 32


def claim_named(
    worker: int, ids: Sequence[int], queues: Iterable[str], leases: Mapping[str, Lease], shards: Shards = WHOLE
) -> Statement[list[ClaimedJob]]:
    """Claim those of these jobs that are due, plain, and of these queues and of the kinds in `leases`.

    Whether they are next in their queues is not asked. A plain job has no order key, limits or tenant, and is no
    suspect.
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


def claim_plain(  # noqa: PLR0913 - one keyword per input of a claim
    worker: int,
    queue: str,
    limit: int,
    *,
    served: Served,
    floors: Floors,
    windows: tuple[int, int] = (0, 0),
) -> Statement[list[ClaimedJob]] | None:
    """Claim at most `limit` jobs of one queue: the first that `claim_jobs` would take from the floors on, or none.

    `windows`: as `Windows.asked_by_plain` returns it.
    None: there are no floors, or too many priorities of too many kinds.
    """
    lanes = floors.lanes(0, [queue], None)
    ranges = _between(lanes, served.leases)
    if not lanes or len(lanes) + len(ranges) > MOST_RANGES:
        return None
    width, first = windows
    return statement(
        "claim_plain",
        many(ClaimedJob),
        worker=worker,
        queue=queue,
        limit=limit,
        leases=number_array([served.usual, *served.other.values()]),
        lease_kinds=text_array(served.other),
        lane_kinds=text_array([lane.kind for lane, _ in lanes]),
        lane_levels=number_array([lane.priority for lane, _ in lanes]),
        lane_times=f"{{{','.join([since.isoformat() for _, (since, _) in lanes])}}}",
        lane_ids=number_array([last for _, (_, last) in lanes]),
        kinds=text_array([kind for kind, _, _ in ranges]),
        lows=number_array([low for _, low, _ in ranges]),
        highs=number_array([high for _, _, high in ranges]),
        windows=width,
        first_window=first,
    )


def _between(lanes: Sequence[tuple[Lane, tuple[datetime, int]]], kinds: Iterable[str]) -> list[tuple[str, int, int]]:
    """Return each range of priorities without a floor, of each kind, as far as they come before the last lane."""
    last = max((lane.priority for lane, _ in lanes), default=-1)
    found = []
    for kind in kinds:
        levels = [-1, *sorted(lane.priority for lane, _ in lanes if lane.kind == kind)]
        levels += [last + 1] if levels[-1] < last else []
        found += [(kind, low + 1, high - 1) for low, high in pairwise(levels) if low + 1 < high]
    return found
