"""What the operations API answers with: from this list come its OpenAPI document and the dashboard's types.

Times are UTC; durations are seconds unless the name says otherwise; ids are strings in JSON, since a browser's numbers
end at 2**53.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer, WithJsonSchema

from holdfast.ops.role import Role  # noqa: TC001 - pydantic reads the annotations

Id = Annotated[
    int, PlainSerializer(str, return_type=str), WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,19}$"})
]
Status = Literal["blocked", "pending", "processing", "completed", "failed", "cancelled"]
Severity = Literal["critical", "warning"]


class Answer(BaseModel):
    """A part of an answer: never changed once it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# --- who asks ---------------------------------------------------------------------------------------------------------


class Me(Answer):
    """Who asks, and what they may."""

    name: str
    role: Role
    version: str
    """Of Holdfast."""


class Refusal(Answer):
    """Why a request was not answered."""

    error: str
    """A code, e.g. `not_found`."""
    message: str
    """For people: what is wrong, and what to do."""


# --- the seeds' endpoints ---------------------------------------------------------------------------------------------


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
    last_error: str | None


class StatsConfig(Answer):
    poll_ms: int
    batch_size: int
    max_attempts: int
    processing_timeout_ms: int
    retry_base_ms: int
    retry_max_ms: int


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


# --- overview ---------------------------------------------------------------------------------------------------------


class Problem(Answer):
    """Something that a person should look at."""

    code: Literal[
        "no_worker", "no_reaper", "unserved_kind", "backlog", "failing", "stuck", "relay_behind", "relay_elsewhere",
        "runner_failing", "census_old",
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


# --- jobs -------------------------------------------------------------------------------------------------------------


class JobLine(Answer):
    """A job in a list."""

    id: Id
    status: Status
    kind: str
    queue: str
    priority: int
    attempt: int
    max_attempts: int
    created_at: datetime
    available_at: datetime
    finished_at: datetime | None
    worker: Id | None
    order_key: str | None
    unique_key: str | None
    error_code: str | None


class Looked(Answer):
    """How far a search looked: at most so many rows at a time, whatever was asked for."""

    jobs: int
    back_to: datetime | None
    """When the oldest job that it looked at was created; null: it looked at none."""
    complete: bool
    """True: nothing further back is left."""


class JobPage(Answer):
    jobs: list[JobLine]
    """Newest first."""
    next: Id | None
    """`before` of the next page; null: there is none."""
    looked: Looked


class AttemptLine(Answer):
    """How one attempt of a job ended. A first one that completes leaves none."""

    attempt: int
    outcome: Literal["completed", "retry", "reschedule", "failed", "cancelled", "released", "lost"]
    ended_at: datetime
    worker: Id | None
    worker_name: str | None
    error_code: str | None
    error: str | None


class JobStory(Answer):
    """Everything that is known of a job. Payload, headers and result are redacted."""

    id: Id
    status: Status
    kind: str
    queue: str
    priority: int
    attempt: int
    max_attempts: int
    created_at: datetime
    available_at: datetime
    finished_at: datetime | None
    expires_at: datetime | None
    locked_until: datetime | None
    cancel_requested_at: datetime | None
    worker: Id | None
    worker_name: str | None
    chain_id: Id
    next_id: Id | None
    order_key: str | None
    unique_key: str | None
    payload: Any
    payload_bytes: int
    headers: Any
    result: Any
    redacted: bool
    """True: something in payload, headers or result was left out."""
    trace: str | None
    """The `traceparent` of who enqueued it."""
    progress: float | None
    progress_note: str | None
    error_code: str | None
    error: str | None
    attempts: list[AttemptLine]
    """Oldest first."""
    replay_of: Id | None
    replays: list[Id]
    blockers: list[Blocker]


class Blocker(Answer):
    """A chain that a job comes after; status null: it lives."""

    chain_id: Id
    status: Status | None


class JobActionResult(Answer):
    """What an action did, or would do."""

    preview: bool
    matched: int
    """How many jobs were found that the action can be done to, at most the cap."""
    capped: bool
    """True: there may be more than were matched. Ask again for the next."""
    done: int
    """0 in a preview."""
    refused: list[RefusedJob]
    """The first hundred that could not be acted on, and why."""
    sample: list[JobLine]
    """The first twenty of those matched."""
    looked: Looked


class RefusedJob(Answer):
    id: Id
    why: str


# --- chains -----------------------------------------------------------------------------------------------------------


class ChainLine(Answer):
    """A chain by its first and last job."""

    id: Id
    kind: str
    last_id: Id
    last_kind: str
    status: Status
    created_at: datetime
    finished_at: datetime | None


class ChainPage(Answer):
    chains: list[ChainLine]
    next: Id | None
    looked: Looked


class ChainNode(Answer):
    """A job of a chain's graph."""

    id: Id
    chain_id: Id
    kind: str
    queue: str
    status: Status
    attempt: int
    created_at: datetime
    finished_at: datetime | None
    error_code: str | None
    progress: float | None


class ChainEdge(Answer):
    """`next`: the one continues as the other. `replay`: the other runs the one again. `blocks`: it must end before."""

    source: Id
    target: Id
    kind: Literal["next", "replay", "blocks"]


class ChainGraph(Answer):
    """A chain with the chains it came after and those that come after it, at most 200 jobs."""

    id: Id
    status: Status
    result: Any
    nodes: list[ChainNode]
    edges: list[ChainEdge]
    complete: bool
    """False: there are more jobs than are shown."""


# --- dead letters -----------------------------------------------------------------------------------------------------


class DeadLetterGroup(Answer):
    """Dead letters of one kind that failed for one reason."""

    kind: str
    queue: str
    error_code: str
    error: str | None
    """Of the newest."""
    jobs: int
    first_at: datetime
    last_at: datetime
    newest: Id


class DeadLetters(Answer):
    groups: list[DeadLetterGroup]
    """Those with the most jobs first."""
    looked: Looked


# --- runners, workers, queues, kinds ----------------------------------------------------------------------------------


class RunLine(Answer):
    id: Id
    runner: str
    started_at: datetime
    finished_at: datetime | None
    worker: Id | None
    outcome: str | None
    counts: dict[str, int]
    error_code: str | None
    error: str | None


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


# --- subscriptions ----------------------------------------------------------------------------------------------------


class PartitionLine(Answer):
    partition: int
    worker: Id | None
    lag_events: int
    lag_seconds: float
    at: datetime


class SubscriptionLine(Answer):
    name: str
    target: str
    paused: bool
    elsewhere: bool
    """Its positions are of another server: this database was restored, and the subscription must be rebased."""
    lag_events: int
    lag_seconds: float
    parked: int
    partitions: list[PartitionLine]


class Subscriptions(Answer):
    subscriptions: list[SubscriptionLine]


class ParkedLine(Answer):
    event_id: Id
    topic: str | None
    key: str | None
    holds_key: bool
    parked_at: datetime
    released_at: datetime | None
    error_code: str | None
    error: str | None


class ParkedPage(Answer):
    parked: list[ParkedLine]
    next: Id | None


# --- actions and audit ------------------------------------------------------------------------------------------------


class Done(Answer):
    """An action on something that is not a job was done."""

    done: Literal[True] = True
    message: str


class AuditLine(Answer):
    """What a person did."""

    id: Id
    at: datetime
    who: str
    role: Role
    action: str
    """E.g. `jobs.retry`, `queue.pause`."""
    target: str | None
    jobs: int | None
    """On how many, where it was done to jobs."""
    detail: dict[str, Any]


class AuditPage(Answer):
    entries: list[AuditLine]
    """Newest first."""
    next: Id | None
