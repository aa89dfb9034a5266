"""Jobs and events kept in the transaction that made them."""

from holdfast.abort import AbortReason
from holdfast.app import Holdfast
from holdfast.codec import JsonCodec
from holdfast.errors import (
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

__all__ = [
    "AbortReason",
    "Busy",
    "DeclaredKind",
    "DuplicateJob",
    "Fail",
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
    "Unique",
    "UnknownKind",
    "UnsupportedConnection",
]
