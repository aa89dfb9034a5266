"""Counts for people: the census of live jobs, taken now and then, and tallies of what ended. No page counts a table."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.store.statement import Row, Statement, statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.store.statement import Parameter

# Above each of these, in seconds, begins the next bucket of a tally: as in `holdfast.latency_bucket`.
BOUNDS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    1800.0, 3600.0, 7200.0, 21600.0, 86400.0,
)  # fmt: skip
MOST_TALLIES = 50_000


class Counted(NamedTuple):
    """The live jobs of one kind in one queue."""

    queue: str
    kind: str
    pending: int = 0
    due: int = 0
    processing: int = 0
    blocked: int = 0
    stuck: int = 0
    oldest_due_at: datetime | None = None


class Census(NamedTuple):
    now: datetime
    at: datetime | None
    """None: nobody has counted yet."""
    seconds: float
    sampled: float
    """The part of the table that was looked at."""
    lines: list[Counted]


class TallyLine(NamedTuple):
    """What ended of a queue in one minute, by how it ended and how long it took from being due."""

    minute: datetime
    queue: str
    outcome: str
    bucket: int | None
    jobs: int


class KindTally(NamedTuple):
    """What ended of a kind within some minutes, by how it ended and how long it took from being due."""

    queue: str
    kind: str
    outcome: str
    bucket: int | None
    jobs: int


def take_census(*, every_ms: int = 5_000, whole: bool = False) -> Statement[bool]:
    """Count the live jobs if that was not done lately; with `whole` only where there are few. False: not counted."""
    params: dict[str, Parameter] = {
        "every_ms": every_ms,
        "whole": whole,
    }
    return Statement(statements()["take_census"], params, lambda rows: bool(rows[0][0]))


def read_census() -> Statement[Census]:
    return Statement(statements()["read_census"], {}, _census)


def read_tallies(minutes: int) -> Statement[list[TallyLine]]:
    """Answer with what ended within so many minutes, the present one included."""
    return Statement(
        statements()["read_tallies"],
        {"minutes": minutes, "most": MOST_TALLIES},
        lambda rows: [TallyLine._make(row) for row in rows],
    )


def read_kind_tallies(minutes: int) -> Statement[list[KindTally]]:
    """Answer with what ended of each kind within so many minutes, the present one included."""
    return Statement(
        statements()["read_kind_tallies"],
        {"minutes": minutes, "most": MOST_TALLIES},
        lambda rows: [KindTally._make(row) for row in rows],
    )


def sum_tallies() -> Statement[dict[str, int]]:
    """Answer with how many are kept that completed and that failed."""
    return Statement(statements()["sum_tallies"], {}, lambda rows: {row[0]: int(row[1]) for row in rows})


def _census(rows: Sequence[Row]) -> Census:
    now, at, seconds, sampled, lines = rows[0]
    if at is None:
        return Census(now, None, 0.0, 1.0, [])
    told: dict[str, list[dict[str, Any]]] = json.loads(lines)
    found: dict[tuple[str, str], Counted] = {}
    for line in told["waiting"]:
        oldest = line.pop("oldest_due_at")
        made = Counted(**line, oldest_due_at=datetime.fromisoformat(oldest) if oldest else None)
        found[made.queue, made.kind] = made
    for line in told["processing"]:
        made = found.get((line["queue"], line["kind"]), Counted(line["queue"], line["kind"]))
        found[made.queue, made.kind] = made._replace(processing=line["processing"], stuck=line["stuck"])
    return Census(now, at, seconds, sampled, sorted(found.values()))
