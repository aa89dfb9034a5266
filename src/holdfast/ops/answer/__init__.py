"""What the operations API answers with: from this list come its OpenAPI document and the dashboard's types.

Times are UTC; durations are seconds unless the name says otherwise; ids are strings in JSON, since a browser's numbers
end at 2**53.
"""

from __future__ import annotations

from holdfast.ops.answer.chain import ChainEdge, ChainGraph, ChainLine, ChainNode, ChainPage
from holdfast.ops.answer.deed import AuditLine, AuditPage, Done
from holdfast.ops.answer.fleet import (
    KindLine,
    Kinds,
    QueueLine,
    Queues,
    RunLine,
    RunnerLine,
    Runners,
    RunPage,
    WorkerLine,
    Workers,
)
from holdfast.ops.answer.job import (
    AttemptLine,
    Blocker,
    DeadLetterGroup,
    DeadLetters,
    JobActionResult,
    JobLine,
    JobPage,
    JobStory,
    Looked,
    RefusedJob,
)
from holdfast.ops.answer.outbox import RunOnce, RunOnceSummary, Stats, StatsConfig, StatsQueue, StatsRuntime
from holdfast.ops.answer.overview import Depth, Latency, Minute, Overview, Problem, QueueOverview, UnservedKind
from holdfast.ops.answer.part import Answer, Id, Severity, Status
from holdfast.ops.answer.person import Me, Refusal
from holdfast.ops.answer.subscription import ParkedLine, ParkedPage, PartitionLine, SubscriptionLine, Subscriptions

__all__ = [
    "Answer",
    "AttemptLine",
    "AuditLine",
    "AuditPage",
    "Blocker",
    "ChainEdge",
    "ChainGraph",
    "ChainLine",
    "ChainNode",
    "ChainPage",
    "DeadLetterGroup",
    "DeadLetters",
    "Depth",
    "Done",
    "Id",
    "JobActionResult",
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
