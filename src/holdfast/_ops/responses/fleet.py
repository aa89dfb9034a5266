"""Answers about the overview, workers, queues, kinds, runners, subscriptions and the outbox."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import Any, Literal, TypeAlias

from holdfast._ops.responses.job import Edited, Items, Severity
from holdfast._store.answer import Answer, ErrorText, Id
from holdfast._store.schedule import RunLine  # noqa: TC001 - pydantic reads the annotations
from holdfast._store.subscription import ParkedLine  # noqa: TC001 - as above
from holdfast._store.worker import WorkerLine  # noqa: TC001 - as above


class DatabaseFigures(Answer):
    """The work in one database."""

    at: datetime
    due: int
    oldest_due_seconds: float
    unfinished: int
    """Jobs that wait, run or are blocked."""
    completed_minute: int
    """Within the last whole minute."""
    failed_hour: int
    """Dead letters of the last hour."""
    workers: int
    """Live ones."""
    problems: int


class DatabaseLine(Answer):
    name: str
    state: Literal["serving", "draining", "not answering"]
    draining: bool
    """Whether it gets no new work, also while it does not answer."""
    why: str | None
    """Why it does not answer."""
    figures: DatabaseFigures | None
    """As it last answered; null if it has not answered this process yet."""


class DatabaseLines(Items):
    items: list[DatabaseLine]


class RunnerLine(Edited):
    """A runner or a schedule, when it runs next, and how it ran last."""

    edited = ("schedule",)

    name: str
    what: Literal["runner", "job", "loop"]
    """`loop`: it has no schedule, each worker runs it continuously."""
    schedule: str | None
    added: bool
    """Whether it was added at run time, and not declared by the code."""
    kind: str | None
    """Of the job that it enqueues."""
    payload: Any
    """Redacted. Null, too, where it is larger than 1 kB."""
    paused: bool
    triggered: bool
    next_at: list[datetime]
    """The next three times; none while it is paused."""
    last: RunLine | None
    """Null for the schedule of a job: its runs are jobs."""
    last_at: datetime | None
    """The slot that was started last; of a job's schedule, when a job was last enqueued for it."""
    running_since: datetime | None
    """When the tick that runs now began; null when none runs, or the process that ran it died."""
    running_on: Id | None
    """The worker that runs it."""


class Runners(Items):
    items: list[RunnerLine]


class RunPage(Items):
    items: list[RunLine]
    """Newest first."""


class Workers(Items):
    items: list[WorkerLine]
    """Live ones first, then the latest."""
    unserved: list[UnservedKind]


class QueueLine(Edited):
    """A queue: what is in it, and its control row. Null: the worker's own setting holds."""

    edited = ("concurrency", "lease_ms", "rate")

    name: str
    paused: bool
    concurrency: int | None
    lease_ms: int | None
    rate: float | None
    depth: Depth
    workers: int
    """Live ones that serve it."""


class Queues(Items):
    items: list[QueueLine]
    counted_at: datetime | None


class LimitLine(Edited):
    """A limit as it is in force, and what it holds back. Null: any number."""

    edited = ("concurrency", "rate", "burst")

    name: str
    parameters: list[str] | None
    """Whose values make the keys, each with the limit for itself; null: there is one key."""
    concurrency: int | None
    rate: str | None
    burst: int
    declared: bool
    """Whether the code of a worker declared it."""
    set_by: str | None
    """The operator who set these values; null: they are as declared."""
    set_at: datetime | None
    running: int
    """Over all its keys. At most 10,000 are counted, here and of those that wait."""
    waiting: int
    oldest_seconds: float | None
    """For how long the first of those that wait has been due."""


class Limits(Items):
    items: list[LimitLine]


class KindLine(Answer):
    """A kind that has live jobs or a live worker, and what ended within the last hour."""

    kind: str
    queue: str
    depth: Depth
    workers: int
    completed: int
    failed: int
    waiting: Percentiles
    """How long attempts were due before they started."""
    running: Percentiles
    """How long handlers ran, by attempt."""


class Kinds(Items):
    items: list[KindLine]
    counted_at: datetime | None


class PartitionLine(Answer):
    partition: int
    worker: Id | None
    lag_events: int
    lag_seconds: float
    at: datetime


class SubscriptionLine(Answer):
    name: str
    target: str
    """The kind that it enqueues, or the sink that it relays to."""
    paused: bool
    elsewhere: bool
    """Its positions are of another server: this database was restored, and the subscription must be rebased."""
    lag_events: int
    lag_seconds: float
    parked: int
    partitions: list[PartitionLine]


class Subscriptions(Items):
    items: list[SubscriptionLine]


class ParkedPage(Items):
    items: list[ParkedLine]


ProblemCode: TypeAlias = Literal[
    "locked", "no_worker", "worker_silent", "paused", "unserved_kind", "order_stopped", "payload_unread", "sink_down",
    "kind_failing", "retry_storm", "slow_kind", "catching_up", "backlog", "relay_elsewhere", "relay_behind",
    "relay_parked", "no_reaper", "stuck", "runner_failing", "census_old",
]  # fmt: skip


class Problem(Answer):
    """A cause of what is wrong. Its consequences are not problems of their own."""

    code: ProblemCode
    severity: Severity
    title: str
    """The problem in words that stay the same while it lasts."""
    text: str
    """The same in a sentence, with the present figures."""
    advice: str
    """The next step."""
    about: str | None = None
    """The queue, kind, order key, worker, runner or relay."""
    since: datetime
    """When it began, or was first seen where that is not known."""
    count: int | None = None
    """How many jobs or events are concerned; null where that means nothing."""
    page: str
    """The page of the dashboard that shows it, as it stands behind `#/`."""
    command: str | None = None
    """A command that helps; null where none does."""


class Percentiles(Answer):
    """In seconds, each wrong by at most 5 %; null: no attempt ended."""

    p50: float | None
    """Half of all are below it."""
    p95: float | None
    """95 of 100 are below it."""
    p99: float | None
    """99 of 100 are below it."""


class Minute(Answer):
    """The jobs that ended in one minute."""

    minute: datetime
    completed: int
    failed: int
    retried: int
    cancelled: int
    waiting: Percentiles
    """How long attempts were due before they started."""
    running: Percentiles
    """How long handlers ran, by attempt."""


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
    waiting: Percentiles
    """How long attempts were due before they started."""
    running: Percentiles
    """How long handlers ran, by attempt."""
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
    verdict: str
    """In a few words: `All is well`, or why that is not said."""
    problems: list[Problem]
    """Critical ones first."""
    depth: Depth
    completed: int
    failed: int
    retried: int
    waiting: Percentiles
    """How long attempts were due before they started."""
    running: Percentiles
    """How long handlers ran, by attempt."""
    minutes: list[Minute]
    """Oldest first, one for each of the minutes asked for, the present one included."""
    queues: list[QueueOverview]
    workers: int
    """Live ones."""
    unserved: list[UnservedKind]
    relay_lag_events: int
    relay_lag_seconds: float


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
    """The settings of the live workers; null where they differ. If no worker lives, those of this process."""

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
