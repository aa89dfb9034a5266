"""The statistics of the outbox, and a tick of it by hand."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads the annotations

from holdfast._ops.responses.part import Answer, ErrorText


class StatsQueue(Answer):
    total: int
    due_now: int
    oldest_pending_age_seconds: float
    stuck_processing: int
    pending: int
    processing: int
    sent: int
    failed: int


class StatsRuntime(Answer):
    is_running: bool
    ticks_total: int
    processed_total: int
    retried_total: int
    dead_letter_total: int
    recovered_stuck_total: int
    last_error: ErrorText | None


class StatsConfig(Answer):
    """The settings of the live workers; null where they differ, and everywhere when no worker lives."""

    poll_ms: int | None
    batch_size: int | None
    max_attempts: int | None
    """Null, too, where there is no limit."""
    processing_timeout_ms: int | None
    retry_base_ms: int | None
    retry_max_ms: int | None


class Stats(Answer):
    generated_at: datetime
    queue: StatsQueue
    runtime: StatsRuntime
    config: StatsConfig


class RunOnceSummary(Answer):
    processed: int
    completed: int
    retried: int
    failed: int
    recovered: int
    lost: int
    duration_ms: int


class RunOnce(Answer):
    summary: RunOnceSummary
