"""Runs: the record of the ticks that did something, or failed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from holdfast.store.statement import Row, Statement, statements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from holdfast.failure import Failure
    from holdfast.store.statement import Parameter

RunOutcome: TypeAlias = Literal["completed", "failed", "cancelled", "lost"]


class Begun(NamedTuple):
    """A run that nothing is written of yet."""

    id: int
    started_at: datetime


class RunLine(NamedTuple):
    """A run in a list."""

    id: int
    runner: str
    started_at: datetime
    finished_at: datetime | None
    worker: int | None
    outcome: RunOutcome | None
    counts: dict[str, int]
    error_code: str | None
    error: str | None


def begin_run() -> Statement[Begun]:
    """Draw the id of a run, and read the clock. Nothing is written."""
    return Statement(statements()["begin_run"], {}, lambda rows: Begun._make(rows[0]))


def record_run(  # noqa: PLR0913 - what there is to say of a run
    begun: Begun,
    runner: str,
    outcome: RunOutcome,
    *,
    worker: int,
    counts: Mapping[str, int],
    failure: Failure | None = None,
) -> Statement[None]:
    params: dict[str, Parameter] = {
        "id": begun.id,
        "started_at": begun.started_at.isoformat(),
        "worker": worker,
        "runner": runner,
        "outcome": outcome,
        "counts": counts_json(counts),
        "error_code": failure.code if failure else None,
        "error": failure.text if failure else None,
    }
    return Statement(statements()["record_run"], params, lambda _: None)


def list_runs(runner: str | None = None, *, most: int = 50) -> Statement[list[RunLine]]:
    """Read the latest runs, of one runner or of all."""
    if runner is None:
        return Statement(statements()["list_runs"], {"most": most}, _lines)
    return Statement(statements()["list_runs_of"], {"runner": runner, "the_runner": runner, "most": most}, _lines)


def last_runs(*, days: int = 7, most: int = 1000) -> Statement[list[RunLine]]:
    """Read the last run of each runner."""
    return Statement(statements()["last_runs"], {"days": days, "days_again": days, "most": most}, _lines)


def counts_json(counts: Mapping[str, int]) -> str | None:
    return json.dumps(dict(counts)) if counts else None


def _lines(rows: Sequence[Row]) -> list[RunLine]:
    return [RunLine._make((*row[:6], json.loads(row[6]) if row[6] else {}, *row[7:])) for row in rows]
