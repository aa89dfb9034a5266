"""The answer about the past: how jobs ended, waited and ran, and what waited, step by step."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import Literal, TypeAlias

from holdfast._store.answer import Answer

Range: TypeAlias = Literal["1h", "6h", "24h", "7d"]
By: TypeAlias = Literal["queue", "kind", "worker"]


class TrendTimes(Answer):
    """Percentiles in seconds, one for each step, each wrong by at most 5 %; null: no attempt ended."""

    p50: list[float | None]
    """Half of the attempts of a step are below it."""
    p95: list[float | None]
    """95 of 100 are below it."""
    p99: list[float | None]
    """99 of 100 are below it."""


class TrendLine(Answer):
    """One queue, kind or worker, or all together. Every list has a value for each step."""

    name: str
    """Of the queue, kind or worker; empty for all."""
    id: str | None
    """Of the worker, since names repeat; null: it is none."""
    completed: list[int]
    """Jobs that completed."""
    failed: list[int]
    """Jobs that became dead letters."""
    retried: list[int]
    """Attempts that failed and were made again."""
    waiting: TrendTimes
    """How long attempts were due before they started. Not known by worker."""
    running: TrendTimes
    """How long handlers ran. Not known by worker."""
    due: list[int | None]
    """The most that was due at one count; null: nothing was counted, or it is a worker."""
    processing: list[int | None]
    """The most that ran at one count."""
    oldest_due_seconds: list[float | None]
    """The longest that a due job had waited at one count."""


class VersionMark(Answer):
    """A version of the application, for a mark on the charts."""

    version: str
    """As `HOLDFAST_APP_VERSION` names it."""
    first_seen_at: datetime
    """When the first worker with it started."""


class Trends(Answer):
    range: Range
    """How far back."""
    by: By
    """By what the lines are."""
    step_seconds: int
    """How long a step is. The last one is still going on."""
    at: list[datetime]
    """When each step begins."""
    total: TrendLine
    """All together, or what `queue` and `kind` ask for."""
    lines: list[TrendLine]
    """The twelve with the most ended attempts and due jobs, the largest first."""
    versions: list[VersionMark]
    """Those that were first seen within the range, the latest first."""
