"""Workers, and the queues, kinds and runners that they serve."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import Literal

from holdfast.ops.answer.overview import Depth, Latency, UnservedKind  # noqa: TC001 - pydantic reads the annotations
from holdfast.ops.answer.part import Answer, ErrorText, Id


class RunLine(Answer):
    id: Id
    runner: str
    started_at: datetime
    finished_at: datetime | None
    worker: Id | None
    outcome: str | None
    counts: dict[str, int]
    error_code: str | None
    error: ErrorText | None


class RunnerLine(Answer):
    """A runner or a schedule, when it runs next, and how it ran last."""

    name: str
    what: Literal["runner", "job", "loop"]
    """`loop`: it has no schedule, each worker runs it again and again."""
    schedule: str | None
    paused: bool
    triggered: bool
    next_at: list[datetime]
    """The next three times; none while it is paused."""
    last: RunLine | None
    running_since: datetime | None
    running_on: Id | None


class Runners(Answer):
    runners: list[RunnerLine]


class RunPage(Answer):
    runs: list[RunLine]
    """Newest first."""


class WorkerLine(Answer):
    id: Id
    name: str
    host: str | None
    pid: int | None
    version: str | None
    state: Literal["live", "silent", "stopped"]
    """`silent`: not stopped, and not heard of for longer than a lease."""
    started_at: datetime
    heartbeat_at: datetime
    reaped_at: datetime | None
    stopped_at: datetime | None
    stop_reason: str | None
    queues: list[str]
    kinds: list[str]
    counters: dict[str, int]


class Workers(Answer):
    workers: list[WorkerLine]
    """Live ones first, then the latest."""
    unserved: list[UnservedKind]


class QueueLine(Answer):
    """A queue: what is in it, and its control row. Null: the worker's own setting holds."""

    name: str
    paused: bool
    concurrency: int | None
    lease_ms: int | None
    rate: float | None
    depth: Depth
    workers: int
    """Live ones that serve it."""


class Queues(Answer):
    queues: list[QueueLine]
    counted_at: datetime | None


class KindLine(Answer):
    """A kind that has live jobs or a live worker, and what ended within the last hour."""

    kind: str
    queue: str
    depth: Depth
    workers: int
    completed: int
    failed: int
    latency: Latency


class Kinds(Answer):
    kinds: list[KindLine]
    counted_at: datetime | None
