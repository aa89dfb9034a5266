from __future__ import annotations

from types import ModuleType

import holdfast

PUBLIC = {
    "AbortReason",
    "AbortSignal",
    "Aborted",
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
    "AlreadyReplayed",
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
}


def test_the_public_names_are_these() -> None:
    assert set(holdfast.__all__) == PUBLIC
    assert len(holdfast.__all__) == len(PUBLIC)


def test_nothing_else_looks_public() -> None:
    present = {
        name for name, value in vars(holdfast).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert present == PUBLIC
