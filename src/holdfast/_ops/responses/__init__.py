"""Defines the answers of the operations API; its OpenAPI document and the dashboard's types come from this list.

Times are UTC; durations are seconds unless the name says otherwise; ids are strings in JSON, since a browser's numbers
end at 2**53.

part.py    holds the base class, the refusal, and the answers about the caller and the audit
job.py     answers about jobs, chains and actions on them
fleet.py   answers about the overview, workers, queues, kinds, runners and subscriptions
outbox.py  answers about the outbox statistics and a manual tick
"""

from __future__ import annotations

from holdfast._ops.responses.fleet import (
    Depth,
    KindLine,
    Kinds,
    Latency,
    Minute,
    Overview,
    ParkedLine,
    ParkedPage,
    PartitionLine,
    Problem,
    QueueLine,
    QueueOverview,
    Queues,
    RunLine,
    RunnerLine,
    Runners,
    RunPage,
    SubscriptionLine,
    Subscriptions,
    UnservedKind,
    WorkerLine,
    Workers,
)
from holdfast._ops.responses.job import (
    AttemptLine,
    ChainEdge,
    ChainGraph,
    ChainItem,
    ChainNode,
    ChainPage,
    DeadLetterGroup,
    DeadLetters,
    JobActionResult,
    JobBlocker,
    JobLine,
    JobPage,
    JobStory,
    Looked,
    RefusedJob,
)
from holdfast._ops.responses.outbox import RunOnce, RunOnceSummary, Stats, StatsConfig, StatsQueue, StatsRuntime
from holdfast._ops.responses.part import Answer, AuditLine, AuditPage, Done, Id, Me, Refusal, Severity, Status

__all__ = [
    "Answer",
    "AttemptLine",
    "AuditLine",
    "AuditPage",
    "ChainEdge",
    "ChainGraph",
    "ChainItem",
    "ChainNode",
    "ChainPage",
    "DeadLetterGroup",
    "DeadLetters",
    "Depth",
    "Done",
    "Id",
    "JobActionResult",
    "JobBlocker",
    "JobLine",
    "JobPage",
    "JobStory",
    "KindLine",
    "Kinds",
    "Latency",
    "Looked",
    "Me",
    "Minute",
    "Overview",
    "ParkedLine",
    "ParkedPage",
    "PartitionLine",
    "Problem",
    "QueueLine",
    "QueueOverview",
    "Queues",
    "Refusal",
    "RefusedJob",
    "RunLine",
    "RunOnce",
    "RunOnceSummary",
    "RunPage",
    "RunnerLine",
    "Runners",
    "Severity",
    "Stats",
    "StatsConfig",
    "StatsQueue",
    "StatsRuntime",
    "Status",
    "SubscriptionLine",
    "Subscriptions",
    "UnservedKind",
    "WorkerLine",
    "Workers",
]
