"""Holdfast keeps jobs and events in PostgreSQL, committed in the same transaction as your data."""

from holdfast._distribution import missing as _missing

try:
    import psycopg as _psycopg  # noqa: F401 - its import fails without libpq
except ModuleNotFoundError:
    raise
except ImportError as _error:
    raise ImportError(_missing("holdfast", "binary", "libpq (PostgreSQL's client library)")) from _error

from holdfast._app.app import Holdfast
from holdfast._app.sync import SyncClient
from holdfast._engine.report.hook import FailedAttempt
from holdfast._engine.runner import Budget, Counts, Tick
from holdfast._model.batch_kind import BatchKind, Item
from holdfast._model.codec import JsonCodec
from holdfast._model.databases import Databases, by_key
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
    KindTaken,
    LeaseLost,
    NotCommitted,
    NoTransaction,
    PayloadTooLarge,
    RoleMissing,
    SchemaMissing,
    SchemaOutdated,
    SchemaUnknown,
    SubscriptionTaken,
    UnknownKind,
    UnsupportedConnection,
    WrongIsolation,
)
from holdfast._model.event import Event, NewEvent, Topic
from holdfast._model.job import Blocker, Busy, Fail, Handle, Job, Progress, Reschedule, SyncJob
from holdfast._model.kind import DeclaredKind, Kind
from holdfast._model.new_job import Continue, NewJob, OrderKey
from holdfast._model.retry import Retry
from holdfast._model.schedule import Cron, Every
from holdfast._model.settings import Settings, SettingsError
from holdfast._model.unique import Unique
from holdfast._model.work import Lease
from holdfast._store.chain import ChainLine
from holdfast._store.job import Chain, JobInfo, RetryResult
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
    "Handle",
    "Holdfast",
    "HoldfastError",
    "InvalidEvent",
    "InvalidJob",
    "Item",
    "Job",
    "JobInfo",
    "JsonCodec",
    "Kind",
    "KindTaken",
    "Lease",
    "LeaseLost",
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
