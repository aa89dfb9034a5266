"""Whether all is well."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import Literal

from holdfast.ops.answer.part import Answer, Severity


class Problem(Answer):
    """Something that a person should look at."""

    code: Literal[
        "no_worker", "no_reaper", "unserved_kind", "backlog", "failing", "stuck", "relay_behind", "relay_elsewhere",
        "relay_parked", "runner_failing", "census_old",
    ]  # fmt: skip
    severity: Severity
    text: str
    about: str | None = None
    """The queue, kind, runner or subscription."""


class Latency(Answer):
    """From due to ended, in seconds; null where nothing ended. Read from buckets, so it is near, not exact."""

    p50: float | None
    p95: float | None
    p99: float | None


class Minute(Answer):
    """What ended in one minute."""

    minute: datetime
    completed: int
    failed: int
    retried: int
    cancelled: int
    latency: Latency


class Depth(Answer):
    """How many jobs live, at the time of the census."""

    pending: int
    due: int
    """Of the pending ones, those whose time has come."""
    processing: int
    blocked: int
    stuck: int
    """Of the processing ones, those whose lease has expired."""
    oldest_due_seconds: float
    """How long the oldest due job has waited; 0 when none is due."""


class QueueOverview(Answer):
    name: str
    paused: bool
    depth: Depth
    completed: int
    """Within the minutes shown."""
    failed: int
    latency: Latency
    minutes: list[Minute]


class UnservedKind(Answer):
    """A kind that has due jobs and no live worker that takes them."""

    kind: str
    queue: str
    due: int
    oldest_due_seconds: float


class Overview(Answer):
    """Whether all is well."""

    at: datetime
    counted_at: datetime | None
    """When live jobs were last counted; null: never yet."""
    ok: bool
    problems: list[Problem]
    depth: Depth
    completed: int
    failed: int
    retried: int
    latency: Latency
    minutes: list[Minute]
    """Oldest first, one for each of the minutes asked for, the present one included."""
    queues: list[QueueOverview]
    workers: int
    """Live ones."""
    unserved: list[UnservedKind]
    relay_lag_events: int
    relay_lag_seconds: float
