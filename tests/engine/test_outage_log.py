from __future__ import annotations

import logging

import psycopg
import pytest

from holdfast._engine import link as module
from holdfast._engine.link import Link, Outage
from holdfast._logs.log import Log
from holdfast._store.worker import identify_database

log = Log("tests.outage")
GONE = psycopg.OperationalError("connection to postgresql://app:hunter2@db/app failed: Connection refused")


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger=log.logger.name)
    return caplog


def test_an_outage_is_logged_with_its_reason_and_at_its_end(logged: pytest.LogCaptureFixture) -> None:
    outage = Outage(log, "claim_jobs failed, trying again", runner="r")
    for _ in range(1000):
        outage.failed(GONE)
    outage.over()
    outage.over()
    first, last = logged.records
    assert first.levelname == "WARNING"
    assert first.getMessage().startswith("claim_jobs failed, trying again: runner=r error=OperationalError why=")
    assert vars(first)["error"] == "OperationalError"
    assert vars(first)["why"] == "connection to postgresql://app:***@db/app failed: Connection refused"
    assert first.exc_info is None, "that a server is away needs no traceback"
    assert last.levelname == "INFO"
    assert last.getMessage().startswith("claim_jobs failed, trying again: it works again: runner=r failures=")
    assert [vars(line)["failures"] for line in logged.records] == [1, 1000]
    assert [vars(line)["runner"] for line in logged.records] == ["r", "r"]


def test_another_sort_of_failure_is_logged_at_once_and_odd_ones_with_a_traceback(
    logged: pytest.LogCaptureFixture,
) -> None:
    outage = Outage(log, "it failed")
    for exc in (GONE, TimeoutError(), GONE, ValueError("odd"), TimeoutError(), ValueError("odd")):
        outage.failed(exc)
    assert [vars(line)["error"] for line in logged.records] == ["OperationalError", "TimeoutError", "ValueError"]
    assert [line.exc_info is not None for line in logged.records] == [False, False, True]


async def test_a_statement_that_comes_after_the_stop_is_not_logged(
    database: str, logged: pytest.LogCaptureFixture
) -> None:
    outage = Outage(log, "it failed")
    link = Link(database, timeout=5)
    await link.abandon()
    with pytest.raises(psycopg.OperationalError, match="given up") as given_up:
        await link.run(identify_database())
    outage.failed(given_up.value)
    assert logged.records == []


def test_the_next_outage_is_logged_again(logged: pytest.LogCaptureFixture) -> None:
    outage = Outage(log, "it failed")
    for _ in range(2):
        outage.failed(GONE)
        outage.over()
    assert [line.levelname for line in logged.records] == ["WARNING", "INFO"] * 2
    assert (outage.failures, outage.seconds) == (0, 0.0)


def test_a_long_outage_is_logged_repeatedly(logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAY_EVERY", 0.0)
    outage = Outage(log, "it failed")
    for _ in range(3):
        outage.failed(GONE)
    assert [vars(line)["failures"] for line in logged.records] == [1, 2, 3]


def test_what_is_gone_is_tried_again_within_a_second_and_later_within_three() -> None:
    outage = Outage(log, "it failed")
    rests = [outage.failed(GONE) for _ in range(20)]
    assert all(0.05 <= rest <= 1.0 for rest in rests[:10])
    assert rests[0] <= 0.1 < rests[9]
    assert all(1.5 <= rest <= 3.0 for rest in rests[10:])
