"""Jobs and events kept in the transaction that made them."""

from holdfast.abort import AbortReason
from holdfast.app import Holdfast
from holdfast.codec import JsonCodec
from holdfast.engine.hook import FailedAttempt
from holdfast.engine.runner import Budget, Counts, Tick
from holdfast.errors import (
    Aborted,
    DuplicateJob,
    HoldfastError,
    InvalidJob,
    KindTaken,
    LeaseLost,
    PayloadTooLarge,
    SchemaMissing,
    SchemaOutdated,
    SchemaUnknown,
    UnknownKind,
    UnsupportedConnection,
)
from holdfast.job import Handle, Job, NewJob, OrderKey, Unique
from holdfast.kind import DeclaredKind, Kind
from holdfast.lease import Lease
from holdfast.outcome import Busy, Fail, Reschedule
from holdfast.retry import Retry
from holdfast.schedule import Cron, Every
from holdfast.settings import Settings, SettingsError
from holdfast.signal import AbortSignal

__all__ = [
    "AbortReason",
    "AbortSignal",
    "Aborted",
    "Budget",
    "Busy",
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
    "Job",
    "JsonCodec",
    "Kind",
    "KindTaken",
    "Lease",
    "LeaseLost",
    "NewJob",
    "OrderKey",
    "PayloadTooLarge",
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
]
