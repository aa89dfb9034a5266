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
    AlreadyReplayed,
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
    SchemaMissing,
    SchemaOutdated,
    SchemaUnknown,
    SubscriptionTaken,
    UnknownKind,
    UnsupportedConnection,
    WrongIsolation,
)
from holdfast.event import Event, NewEvent, Topic
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
    "AlreadyReplayed",
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
    "SchemaMissing",
    "SchemaOutdated",
    "SchemaUnknown",
    "Settings",
    "SettingsError",
    "SubscriptionTaken",
    "Tick",
    "Topic",
    "Unique",
    "UnknownKind",
    "UnsupportedConnection",
    "WrongIsolation",
]
