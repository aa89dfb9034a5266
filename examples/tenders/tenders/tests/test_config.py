from __future__ import annotations

from datetime import timedelta

import pytest

from tenders.config import Config, set_nights

MINUTE = timedelta(minutes=1)


def test_the_backoff_table_is_that_of_the_former_worker() -> None:
    backoff = Config.load({}).backoff
    assert [backoff.delay(attempt) / MINUTE for attempt in range(1, 8)] == [1, 2, 4, 8, 16, 60, 60]
    assert [attempt for attempt in range(1, 9) if backoff.is_last(attempt)] == [7, 8]
    assert backoff.jittered(3) == 4 * MINUTE


def test_intervals_have_the_defaults_of_the_former_worker() -> None:
    config = Config.load({})
    assert (config.ingest_every, config.dispatch_pause, config.receipt_wait) == (2 * MINUTE, MINUTE, MINUTE)
    assert (config.hot_months, config.delivery_days) == (12, 90)


def test_a_setting_is_read_from_the_environment() -> None:
    config = Config.load(
        {"WORKER_INTERVAL_MINUTES": "0.5", "BACKOFF_MINUTES": "0.01,0.02", "HTTP_TIMEOUT_SECONDS": "3"}
    )
    assert config.ingest_every == timedelta(seconds=30)
    assert [config.backoff.delay(attempt) for attempt in (1, 2, 3)] == [timedelta(seconds=0.6)] + 2 * [
        timedelta(seconds=1.2)
    ]
    assert config.http_timeout == timedelta(seconds=3)


def test_the_nights_are_those_of_santiago_unless_the_environment_has_others() -> None:
    environ = {"HOLDFAST_DATABASE_URL": "postgresql://db/tenders"}
    set_nights(environ)
    assert environ["CLEANUP_CRON"] == "17 3 * * * America/Santiago"
    assert environ["ARCHIVE_EXPORT_CRON"] == "47 3 * * * America/Santiago"
    given = {"HOLDFAST_CLEANUP_CRON": "0 1 * * *", "ARCHIVE_EXPORT_CRON": "0 2 * * *"}
    environ = dict(given)
    set_nights(environ)
    assert environ == given


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("WORKER_INTERVAL_MINUTES", "soon"),
        ("RECEIPT_INTERVAL_MINUTES", "0"),
        ("DISPATCH_INTERVAL_MINUTES", "nan"),
        ("BACKOFF_MINUTES", "1,,4"),
        ("HOT_MONTHS", "-1"),
        ("DELIVERY_RETENTION_DAYS", "1.5"),
    ],
)
def test_a_wrong_setting_is_named(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}(\[1\])?: expected"):
        Config.load({name: text})


def test_a_missing_address_is_named() -> None:
    with pytest.raises(ValueError, match="HOLDFAST_DATABASE_URL, EXPO_URL: not set"):
        Config.load({}).required("database_url", "expo_url")
