"""Holdfast keeps jobs and events in PostgreSQL, committed in the same transaction as your data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._lazy import lazy

if TYPE_CHECKING:
    from holdfast._app.app import Holdfast
    from holdfast._app.sync import SyncClient
    from holdfast._engine.report.hook import FailedAttempt
    from holdfast._engine.runner import Budget, Counts, Tick
    from holdfast._model.batch_kind import BatchKind, Item
    from holdfast._model.codec import JsonCodec
    from holdfast._model.continuation import Continue, Group
    from holdfast._model.databases import Databases, by_key
    from holdfast._model.declared_kind import DeclaredKind
    from holdfast._model.errors import (
        Aborted,
        AbortReason,
        AbortSignal,
        AlreadyReplayed,
        AutocommitWarning,
        ChainAwaited,
        ChainFailed,
        DuplicateJob,
        HoldfastError,
        InvalidEvent,
        InvalidJob,
        InvalidStep,
        KindTaken,
        LeaseLost,
        NotCommitted,
        NoTransaction,
        PayloadTooLarge,
        RoleMissing,
        SchemaMissing,
        SchemaOutdated,
        SchemaUnknown,
        StepFailed,
        StoryChanged,
        SubscriptionTaken,
        UnknownKind,
        UnsupportedConnection,
        WrongIsolation,
    )
    from holdfast._model.event import Event, NewEvent, Topic
    from holdfast._model.handle import Handle
    from holdfast._model.job import Blocker, Job, Progress, SyncJob
    from holdfast._model.kind import Kind
    from holdfast._model.limit import Limit
    from holdfast._model.message import Message
    from holdfast._model.new_job import NewJob, OrderKey
    from holdfast._model.outcome import Busy, Fail, Reschedule
    from holdfast._model.retry import Retry
    from holdfast._model.schedule import Cron, Every
    from holdfast._model.settings import Settings, SettingsError
    from holdfast._model.step import Step
    from holdfast._model.unique import Unique
    from holdfast._model.work import Lease
    from holdfast._store.chain import ChainLine
    from holdfast._store.job import Chain, GroupProgress, JobInfo, JobList, RetryResult
    from holdfast._store.schedule import Running, ScheduleLine
    from holdfast._store.schema import migrate

__all__ = [
    "AbortReason",
    "AbortSignal",
    "Aborted",
    "AlreadyReplayed",
    "AutocommitWarning",
    "BatchKind",
    "Blocker",
    "Budget",
    "Busy",
    "Chain",
    "ChainAwaited",
    "ChainFailed",
    "ChainLine",
    "Continue",
    "Counts",
    "Cron",
    "Databases",
    "DeclaredKind",
    "DuplicateJob",
    "Event",
    "Every",
    "Fail",
    "FailedAttempt",
    "Group",
    "GroupProgress",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "InvalidEvent",
    "InvalidJob",
    "InvalidStep",
    "Item",
    "Job",
    "JobInfo",
    "JobList",
    "JsonCodec",
    "Kind",
    "KindTaken",
    "Lease",
    "LeaseLost",
    "Limit",
    "Message",
    "NewEvent",
    "NewJob",
    "NoTransaction",
    "NotCommitted",
    "OrderKey",
    "PayloadTooLarge",
    "Progress",
    "Reschedule",
    "Retry",
    "RetryResult",
    "RoleMissing",
    "Running",
    "ScheduleLine",
    "SchemaMissing",
    "SchemaOutdated",
    "SchemaUnknown",
    "Settings",
    "SettingsError",
    "Step",
    "StepFailed",
    "StoryChanged",
    "SubscriptionTaken",
    "SyncClient",
    "SyncJob",
    "Tick",
    "Topic",
    "Unique",
    "UnknownKind",
    "UnsupportedConnection",
    "WrongIsolation",
    "by_key",
    "migrate",
]


def __dir__() -> list[str]:
    """Return only the public names."""
    return __all__


if not TYPE_CHECKING:  # a type checker would take any name for one of this module
    # `import holdfast` and `holdfast --help` import neither psycopg nor pydantic, which take ten times as long.
    __getattr__ = lazy(
        __name__,
        {
            "AbortReason": "holdfast._model.errors",
            "AbortSignal": "holdfast._model.errors",
            "Aborted": "holdfast._model.errors",
            "AlreadyReplayed": "holdfast._model.errors",
            "AutocommitWarning": "holdfast._model.errors",
            "BatchKind": "holdfast._model.batch_kind",
            "Blocker": "holdfast._model.job",
            "Budget": "holdfast._engine.runner",
            "Busy": "holdfast._model.outcome",
            "Chain": "holdfast._store.job",
            "ChainAwaited": "holdfast._model.errors",
            "ChainFailed": "holdfast._model.errors",
            "ChainLine": "holdfast._store.chain",
            "Continue": "holdfast._model.continuation",
            "Counts": "holdfast._engine.runner",
            "Cron": "holdfast._model.schedule",
            "Databases": "holdfast._model.databases",
            "DeclaredKind": "holdfast._model.declared_kind",
            "DuplicateJob": "holdfast._model.errors",
            "Event": "holdfast._model.event",
            "Every": "holdfast._model.schedule",
            "Fail": "holdfast._model.outcome",
            "FailedAttempt": "holdfast._engine.report.hook",
            "Group": "holdfast._model.continuation",
            "Handle": "holdfast._model.handle",
            "Holdfast": "holdfast._app.app",
            "HoldfastError": "holdfast._model.errors",
            "InvalidEvent": "holdfast._model.errors",
            "InvalidJob": "holdfast._model.errors",
            "InvalidStep": "holdfast._model.errors",
            "Item": "holdfast._model.batch_kind",
            "Job": "holdfast._model.job",
            "JobInfo": "holdfast._store.job",
            "GroupProgress": "holdfast._store.job",
            "JobList": "holdfast._store.job",
            "JsonCodec": "holdfast._model.codec",
            "Kind": "holdfast._model.kind",
            "KindTaken": "holdfast._model.errors",
            "Lease": "holdfast._model.work",
            "LeaseLost": "holdfast._model.errors",
            "Limit": "holdfast._model.limit",
            "Message": "holdfast._model.message",
            "NewEvent": "holdfast._model.event",
            "NewJob": "holdfast._model.new_job",
            "NoTransaction": "holdfast._model.errors",
            "NotCommitted": "holdfast._model.errors",
            "OrderKey": "holdfast._model.new_job",
            "PayloadTooLarge": "holdfast._model.errors",
            "Progress": "holdfast._model.job",
            "Reschedule": "holdfast._model.outcome",
            "Retry": "holdfast._model.retry",
            "RetryResult": "holdfast._store.job",
            "RoleMissing": "holdfast._model.errors",
            "Running": "holdfast._store.schedule",
            "ScheduleLine": "holdfast._store.schedule",
            "SchemaMissing": "holdfast._model.errors",
            "SchemaOutdated": "holdfast._model.errors",
            "SchemaUnknown": "holdfast._model.errors",
            "Settings": "holdfast._model.settings",
            "SettingsError": "holdfast._model.settings",
            "Step": "holdfast._model.step",
            "StepFailed": "holdfast._model.errors",
            "StoryChanged": "holdfast._model.errors",
            "SubscriptionTaken": "holdfast._model.errors",
            "SyncClient": "holdfast._app.sync",
            "SyncJob": "holdfast._model.job",
            "Tick": "holdfast._engine.runner",
            "Topic": "holdfast._model.event",
            "Unique": "holdfast._model.unique",
            "UnknownKind": "holdfast._model.errors",
            "UnsupportedConnection": "holdfast._model.errors",
            "WrongIsolation": "holdfast._model.errors",
            "by_key": "holdfast._model.databases",
            "migrate": "holdfast._store.schema",
        },
        libpq=True,
    )
