"""Counts for operators: a periodic census of live jobs, and tallies of ended ones. No page counts a whole table."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._store.statement import Row, Statement, many, statement, value

if TYPE_CHECKING:
    from collections.abc import Sequence


# Upper bounds of the buckets of a tally, in seconds, as in `holdfast.latency_bucket`.
BOUNDS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    1800.0, 3600.0, 7200.0, 21600.0, 86400.0,
)  # fmt: skip
MOST_TALLIES = 50_000


class Counted(NamedTuple):
    """The number of live jobs of one kind in one queue."""

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
    """None: no census was taken yet."""
    seconds: float
    sampled: float
    """The fraction of the table that was counted."""
    lines: list[Counted]


class TallyLine(NamedTuple):
    """The number of jobs of a queue that ended in one minute, by outcome and time since they were due."""

    minute: datetime
    queue: str
    outcome: str
    bucket: int | None
    jobs: int


class KindTally(NamedTuple):
    """The number of jobs of a kind that ended within some minutes, by outcome and time since they were due."""

    queue: str
    kind: str
    outcome: str
    bucket: int | None
    jobs: int


def take_census(*, every_ms: int = 5_000, whole: bool = False) -> Statement[bool]:
    """Count the live jobs, unless done recently; with `whole`, only in a small table. Return whether it counted."""
    return statement("take_census", value, every_ms=every_ms, whole=whole)


def read_census() -> Statement[Census]:
    return statement("read_census", _census)


def read_tallies(minutes: int) -> Statement[list[TallyLine]]:
    """Return the tallies of the last `minutes`, including the current one."""
    return statement("read_tallies", many(TallyLine), minutes=minutes, most=MOST_TALLIES)


def read_kind_tallies(minutes: int) -> Statement[list[KindTally]]:
    """Return the tallies of each kind in the last `minutes`, including the current one."""
    return statement("read_kind_tallies", many(KindTally), minutes=minutes, most=MOST_TALLIES)


def sum_tallies() -> Statement[dict[str, int]]:
    """Return the number of completed and failed jobs within the time their history is kept."""
    return statement("sum_tallies", lambda rows: {row[0]: int(row[1]) for row in rows})


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
