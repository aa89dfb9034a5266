"""Values that a document uses by themselves: defaults that depend on them follow."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Settings, SettingsError
from tests.kit.statement import DESIGN, LIFECYCLE, RULES, Document

rules, lifecycle, design = Document(RULES), Document(LIFECYCLE), Document(DESIGN)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    "environ",
    [
        rules.case("RULE-020-002: a lease of 30 s needs no other setting", {"OUTBOX_LEASE_DURATION_MS": "30000"}),
        lifecycle.case(
            "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS may be below the usual heartbeat's threefold",
            {"OUTBOX_WORKER_PROCESSING_TIMEOUT_MS": "30000"},
        ),
    ],
)
def test_a_short_lease(environ: dict[str, str]) -> None:
    settings = Settings.load(environ)
    assert settings.lease == 30 * SECOND
    assert settings.heartbeat * 3 < settings.lease
    assert settings.reap_interval < settings.lease
    assert settings.shutdown_timeout <= settings.lease


@pytest.mark.parametrize(
    ("environ", "least"),
    [
        lifecycle.case("OUTBOX_WORKER_POLL_MS may be above the usual idle cap", {"OUTBOX_WORKER_POLL_MS": "45000"}, 45),
        design.case("a poll interval of 60 s needs no other setting", {"WORKER_IDLE_BACKOFF_MIN_MS": "60000"}, 60),
    ],
)
def test_a_rare_poll(environ: dict[str, str], least: int) -> None:
    settings = Settings.load(environ)
    assert settings.idle_max == least * SECOND
    assert settings.idle_min <= settings.idle_max


@lifecycle.states("a retry delay above the usual maximum needs no other setting")
def test_a_long_retry() -> None:
    retry = Settings.load({"OUTBOX_WORKER_RETRY_BASE_MS": "300000"}).retry
    assert retry.base == 300 * SECOND
    assert retry.delay(2) >= retry.base


@rules.states("RULE-020-011: two given values that contradict each other are refused")
def test_contradiction() -> None:
    with pytest.raises(SettingsError, match="OUTBOX_LEASE_HEARTBEAT_MS"):
        Settings.load({"OUTBOX_LEASE_DURATION_MS": "30000", "OUTBOX_LEASE_HEARTBEAT_MS": "20000"})
