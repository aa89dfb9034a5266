from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

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
}


def test_the_public_names_are_these() -> None:
    assert set(holdfast.__all__) == PUBLIC
    assert len(holdfast.__all__) == len(PUBLIC)


def test_nothing_else_looks_public() -> None:
    assert set(dir(holdfast)) == PUBLIC
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'Jobs'"):
        getattr(holdfast, "Jobs")  # noqa: B009 - no type checker knows it


def test_every_public_name_is_found_where_the_type_checker_finds_it() -> None:
    """Names are imported at their first use, by a table beside the imports that a type checker reads."""
    source = ast.parse(Path(holdfast.__file__).read_text("utf-8"))
    imports = {
        alias.name: node.module
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast._")
        for alias in node.names
    }
    assert imports.keys() == PUBLIC | {"lazy"}
    for name in PUBLIC:
        assert getattr(holdfast, name) is getattr(import_module(imports[name] or ""), name)
