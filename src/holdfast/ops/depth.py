"""Depths: what the census says of a queue, a kind, or everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.ops.answer import Depth, UnservedKind
from holdfast.store import fleet

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from holdfast.store.census import Census, Counted
    from holdfast.store.fleet import FleetWorker


def depth(lines: Iterable[Counted], now: datetime) -> Depth:
    lines = list(lines)
    return Depth(
        pending=sum(line.pending for line in lines),
        due=sum(line.due for line in lines),
        processing=sum(line.processing for line in lines),
        blocked=sum(line.blocked for line in lines),
        stuck=sum(line.stuck for line in lines),
        oldest_due_seconds=max((_age(line.oldest_due_at, now) for line in lines), default=0.0),
    )


def unserved(census: Census, workers: Iterable[FleetWorker]) -> list[UnservedKind]:
    """Return kinds that have due jobs and no live worker that takes them, the longest waiting first."""
    found = [
        UnservedKind(
            kind=line.kind, queue=line.queue, due=line.due, oldest_due_seconds=_age(line.oldest_due_at, census.now)
        )
        for line in fleet.unserved(census, workers)
    ]
    return sorted(found, key=lambda kind: -kind.oldest_due_seconds)


def _age(at: datetime | None, now: datetime) -> float:
    return 0.0 if at is None else max(0.0, (now - at).total_seconds())
