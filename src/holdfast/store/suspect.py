"""Suspects: jobs that were lost with their worker. Any of them may have killed it, so they run apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store.claim import ClaimedJob
from holdfast.store.statement import Row, Statement, number_array, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast.lease import Lease


def claim_suspects(
    worker: int, queues: Iterable[str], leases: Mapping[str, Lease], most: int = 1
) -> Statement[list[ClaimedJob]]:
    """Take suspects that are due, of the kinds in `leases`, for a worker that runs nothing else until they have ended.

    One: any. More: of those that have not been tried together before. Then one whose worker is lost again runs alone.
    """
    return Statement(
        statements()["claim_suspects"],
        {
            "worker": worker,
            "queues": text_array(queues),
            "kinds": text_array(leases),
            "leases": number_array(lease.milliseconds for lease in leases.values()),
            "most": most,
        },
        lambda rows: [ClaimedJob._make(row) for row in rows],
    )


def next_suspect(queues: Iterable[str], kinds: Iterable[str]) -> Statement[float | None]:
    """Answer in how many seconds a suspect is due; negative: for so long it has been. None: there is no suspect."""
    return Statement(statements()["next_suspect"], {"queues": text_array(queues), "kinds": text_array(kinds)}, _seconds)


def isolate_worker(worker: int, seconds: float) -> Statement[bool]:
    """Ask for the turn of the one busy worker that stops for suspects; 0 seconds give it back."""
    return Statement(
        statements()["isolate_worker"], {"worker": worker, "ms": round(seconds * 1000)}, lambda rows: bool(rows[0][0])
    )


def _seconds(rows: Sequence[Row]) -> float | None:
    seconds: float | None = rows[0][0]
    return seconds
