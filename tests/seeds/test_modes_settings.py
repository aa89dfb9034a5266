"""Worker Runtime Modes & Outbox Semantics: the variables, their defaults, and that they are read."""

from __future__ import annotations

from datetime import timedelta
from operator import attrgetter
from typing import Any

import pytest

from holdfast import Settings, SettingsError
from holdfast._engine.runner import selected
from tests.kit.statement import DIFFERENCES, MODES, PRECEDENCE, Document

doc = Document(MODES)


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def loaded(field: str, **environ: str) -> Any:
    return attrgetter(field)(Settings.load(environ))


@pytest.mark.parametrize(
    ("variable", "field", "default", "given"),
    [
        doc.case(
            "WORKER_TICK_OVERALL_MAX_MS, 480000", "WORKER_TICK_OVERALL_MAX_MS", "tick_overall_max", 480_000, 9_000
        ),
        doc.case("WORKER_TICK_RUNNER_MAX_MS, 60000", "WORKER_TICK_RUNNER_MAX_MS", "tick_runner_max", 60_000, 9_000),
        doc.case("WORKER_BUSY_LOOP_DELAY_MS, 250", "WORKER_BUSY_LOOP_DELAY_MS", "busy_delay", 250, 10),
        doc.case("WORKER_IDLE_BACKOFF_MIN_MS, 1000", "WORKER_IDLE_BACKOFF_MIN_MS", "idle_min", 1_000, 2_000),
        doc.case("WORKER_IDLE_BACKOFF_MAX_MS, 30000", "WORKER_IDLE_BACKOFF_MAX_MS", "idle_max", 30_000, 40_000),
        doc.case("WORKER_IDLE_BACKOFF_JITTER_MS, 500", "WORKER_IDLE_BACKOFF_JITTER_MS", "jitter", 500, 0),
        doc.case(
            "WORKER_TICK_LOOP_ERROR_BACKOFF_MS, 30000",
            "WORKER_TICK_LOOP_ERROR_BACKOFF_MS",
            "error_backoff",
            30_000,
            1_000,
        ),
        doc.case("WORKER_TICK_LOOP_MAX_JITTER_MS, 2000", "WORKER_TICK_LOOP_MAX_JITTER_MS", "error_jitter", 2_000, 100),
        doc.case("WORKER_SHUTDOWN_TIMEOUT_MS, 30000", "WORKER_SHUTDOWN_TIMEOUT_MS", "shutdown_timeout", 30_000, 5_000),
        doc.case("OUTBOX_LEASE_DURATION_MS, 60000", "OUTBOX_LEASE_DURATION_MS", "lease", 60_000, 90_000),
        doc.case("OUTBOX_LEASE_HEARTBEAT_MS, 15000", "OUTBOX_LEASE_HEARTBEAT_MS", "heartbeat", 15_000, 10_000),
        doc.case("OUTBOX_RETRY_BASE_MS, 5000", "OUTBOX_RETRY_BASE_MS", "retry.base", 5_000, 100),
        doc.case("OUTBOX_RETRY_MAX_MS, 120000", "OUTBOX_RETRY_MAX_MS", "retry.maximum", 120_000, 200_000),
        doc.case("OUTBOX_RETRY_JITTER_MS, 500", "OUTBOX_RETRY_JITTER_MS", "retry.jitter", 500, 0),
    ],
)
def test_a_time_in_milliseconds(variable: str, field: str, default: int, given: int) -> None:
    assert loaded(field) == ms(default)
    assert loaded(field, **{variable: str(given)}) == ms(given)


@pytest.mark.parametrize(
    ("variable", "field", "default", "given"),
    [
        doc.case("WORKER_TICK_RUNNER_MAX_ITEMS, 200", "WORKER_TICK_RUNNER_MAX_ITEMS", "tick_runner_max_items", 200, 7),
        doc.case("OUTBOX_BATCH_SIZE, 50", "OUTBOX_BATCH_SIZE", "batch_size", 50, 7),
        doc.case("OUTBOX_CONCURRENCY, 10", "OUTBOX_CONCURRENCY", "concurrency", 10, 7),
        doc.case("OUTBOX_MAX_ATTEMPTS, 3", "OUTBOX_MAX_ATTEMPTS", "retry.max_attempts", 3, 7),
    ],
)
def test_a_number(variable: str, field: str, default: int, given: int) -> None:
    assert loaded(field) == default
    assert loaded(field, **{variable: str(given)}) == given
    with pytest.raises(SettingsError, match=variable):
        Settings.load({variable: "0"})


@pytest.mark.parametrize(
    ("variable", "field"),
    [
        doc.case("WORKER_TICK_SHARD_INDEX is unset and optional", "WORKER_TICK_SHARD_INDEX", "shard_index"),
        doc.case("WORKER_TICK_SHARD_COUNT is unset and optional", "WORKER_TICK_SHARD_COUNT", "shard_count"),
    ],
)
def test_a_shard(variable: str, field: str) -> None:
    assert loaded(field) is None
    both = {"WORKER_TICK_SHARD_INDEX": "2", "WORKER_TICK_SHARD_COUNT": "4"}
    assert loaded(field, **both) == int(both[variable])
    with pytest.raises(SettingsError, match="set together with"):
        Settings.load({variable: both[variable]})


@doc.states(
    "PDF_RENDER_CONCURRENCY, 2, bounds heavy handlers apart from the others: the queue pdf, and only if it is set",
    differs=PRECEDENCE,
)
def test_pdf_concurrency() -> None:
    assert loaded("queue_concurrency") == {}
    assert loaded("queue_concurrency", PDF_RENDER_CONCURRENCY="3") == {"pdf": 3}


@doc.states("WORKER_TICK_RUNNERS is a comma-separated list of runners, in order")
def test_runners_in_order() -> None:
    listed = loaded("tick_runners", WORKER_TICK_RUNNERS="outbox, invoiceReminders ,classesBilling")
    assert listed == ("outbox", "invoiceReminders", "classesBilling")


@doc.states(
    "without WORKER_TICK_RUNNERS the runners are outbox, invoiceReminders, classesBilling; the built-in ones follow",
    differs=DIFFERENCES,
)
def test_default_runners() -> None:
    own: Any = dict.fromkeys(["invoiceReminders", "classesBilling"])
    names = selected(loaded("tick_runners"), own)
    assert names[:3] == ["outbox", "invoiceReminders", "classesBilling"]
    assert {"reaper", "schedules", "maintenance"} <= set(names[3:])


@pytest.mark.parametrize(
    ("variable", "field", "given"),
    [
        doc.case(
            "WORKER_API_BASE_URL: where internal scheduler endpoints are called",
            "WORKER_API_BASE_URL",
            "api_base_url",
            "http://127.0.0.1:8080",
        ),
        doc.case(
            "WORKER_API_SERVICE_TOKEN: the internal token", "WORKER_API_SERVICE_TOKEN", "api_service_token", "hush"
        ),
    ],
)
def test_internal_calls(variable: str, field: str, given: str) -> None:
    assert loaded(field) is None
    assert loaded(field, **{variable: given}) == given
    assert "hush" not in repr(Settings.load({variable: given}))
