"""Jobs and events kept in the transaction that made them."""

from holdfast.abort import AbortReason
from holdfast.app import Holdfast
from holdfast.batch import BatchKind, Item
from holdfast.chain import Continue
from holdfast.codec import JsonCodec
from holdfast.engine.hook import FailedAttempt
from holdfast.engine.runner import Budget, Counts, Tick
from holdfast.errors import (
    Aborted,
    ChainAwaited,
    ChainFailed,
    DuplicateJob,
    HoldfastError,
    InvalidJob,
    KindTaken,
    LeaseLost,
    NotCommitted,
    PayloadTooLarge,
    SchemaMissing,
    SchemaOutdated,
    SchemaUnknown,
    UnknownKind,
    UnsupportedConnection,
    WrongIsolation,
)
from holdfast.job import Blocker, Handle, Job, Progress
from holdfast.kind import DeclaredKind, Kind
from holdfast.lease import Lease
from holdfast.new_job import NewJob, OrderKey, Unique
from holdfast.outcome import Busy, Fail, Reschedule
from holdfast.retry import Retry
from holdfast.schedule import Cron, Every
from holdfast.settings import Settings, SettingsError
from holdfast.signal import AbortSignal
from holdfast.store.chain import Chain, ChainJob, ChainLine

__all__ = [
    "AbortReason",
    "AbortSignal",
    "Aborted",
    "BatchKind",
    "Blocker",
    "Budget",
    "Busy",
    "Chain",
    "ChainAwaited",
    "ChainFailed",
    "ChainJob",
    "ChainLine",
    "Continue",
    "Counts",
    "Cron",
    "DeclaredKind",
    "DuplicateJob",
    "Every",
    "Fail",
    "FailedAttempt",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "InvalidJob",
    "Item",
    "Job",
    "JsonCodec",
    "Kind",
    "KindTaken",
    "Lease",
    "LeaseLost",
    "NewJob",
    "NotCommitted",
    "OrderKey",
    "PayloadTooLarge",
    "Progress",
    "Reschedule",
    "Retry",
    "SchemaMissing",
    "SchemaOutdated",
    "SchemaUnknown",
    "Settings",
    "SettingsError",
    "Tick",
    "Unique",
    "UnknownKind",
    "UnsupportedConnection",
    "WrongIsolation",
]
