"""The backlog of the past, the work of each worker, and when versions of the application began."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.statement import Statement, column, many, statement, value

if TYPE_CHECKING:
    from datetime import datetime

_MOST = 20_000
_MOST_THINNED = 1_000


class Backlog(NamedTuple):
    """The most that waited and ran at one count of a step."""

    at: datetime
    queue: str
    kind: str | None
    due: int | None
    processing: int | None
    oldest: float | None
    """For how many seconds the oldest due job had waited."""


class WorkerTotals(NamedTuple):
    """The work of a worker since its start, at its last count in a step."""

    at: datetime
    id: int
    name: str
    completed: int
    failed: int
    retried: int


class VersionStart(NamedTuple):
    version: str
    at: datetime


def keep_census() -> Statement[int]:
    """Keep the last count of live jobs for charts, and thin out older ones."""
    return statement("keep_census", value, limit=_MOST_THINNED)


def read_steps(steps: int, *, seconds: int) -> Statement[list[datetime]]:
    """Return when the steps of `read_tallies` begin."""
    return statement("read_steps", column, steps=steps, seconds=seconds)


def read_backlog(
    since: datetime, *, seconds: int, kinds: bool, queue: str | None = None, kind: str | None = None
) -> Statement[list[Backlog]]:
    """Return what waited in each step of so many `seconds`, by queue; with `kinds`, by kind too."""
    return statement(
        "read_backlog", many(Backlog), since=since.isoformat(), seconds=seconds, kinds=kinds, queue=queue, kind=kind,
        limit=_MOST,
    )  # fmt: skip


def read_counted_steps(since: datetime, *, seconds: int) -> Statement[list[datetime]]:
    """Return the steps in which live jobs were counted: in these, what has no backlog had none."""
    return statement("read_counted_steps", column, since=since.isoformat(), seconds=seconds)


def read_worker_totals(since: datetime, *, seconds: int) -> Statement[list[WorkerTotals]]:
    return statement("read_worker_totals", many(WorkerTotals), since=since.isoformat(), seconds=seconds, limit=_MOST)


def list_versions(since: datetime) -> Statement[list[VersionStart]]:
    """Return the versions of the application whose first worker started since then, the latest first."""
    return statement("list_versions", many(VersionStart), since=since.isoformat())
