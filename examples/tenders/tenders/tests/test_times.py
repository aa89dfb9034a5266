"""The clock of Santiago on the nights on which it changes: 2026-04-05 and 2026-09-06, both at midnight."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest

from tenders.config import NIGHTS
from tenders.times import bounds, days_to_ask, from_local, read_local, today, written

HOUR = timedelta(hours=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00")


def wall(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("day", "begins", "hours"),
    [
        ("2026-01-15", "2026-01-15T03:00", 24),  # summer, three hours behind
        ("2026-07-15", "2026-07-15T04:00", 24),  # winter, four hours behind
        ("2026-04-04", "2026-04-04T03:00", 25),  # has 23:00 twice
        ("2026-04-05", "2026-04-05T04:00", 24),
        ("2026-09-05", "2026-09-05T04:00", 24),
        ("2026-09-06", "2026-09-06T04:00", 23),  # has no 00:00
    ],
)
def test_a_day_has_the_length_that_it_has_in_santiago(day: str, begins: str, hours: int) -> None:
    begin, end = bounds(date.fromisoformat(day))
    assert (begin, end - begin) == (utc(begins), hours * HOUR)
    moments = [begin, begin + HOUR, end - HOUR, end - timedelta(seconds=1)]
    assert {today(moment).isoformat() for moment in moments} == {day}
    assert today(end) == date.fromisoformat(day) + timedelta(days=1)


@pytest.mark.parametrize(
    ("shown", "moment"),
    [
        ("2026-01-15T15:30", "2026-01-15T18:30"),
        ("2026-07-15T15:30", "2026-07-15T19:30"),
        ("2026-04-04T23:30", "2026-04-05T02:30"),  # the first of two
        ("2026-04-05T00:30", "2026-04-05T04:30"),
        ("2026-09-05T23:30", "2026-09-06T03:30"),
        ("2026-09-06T00:30", "2026-09-06T04:30"),  # skipped: read as 01:30
        ("2026-09-06T01:30", "2026-09-06T04:30"),
    ],
)
def test_a_local_time_is_a_moment(shown: str, moment: str) -> None:
    assert from_local(wall(shown)) == utc(moment)


def test_both_passes_of_the_doubled_hour_are_written_alike() -> None:
    assert written(utc("2026-04-05T02:30")) == written(utc("2026-04-05T03:30")) == "04-04-2026 23:30"
    assert written(utc("2026-09-06T03:59")) == "05-09-2026 23:59"
    assert written(utc("2026-09-06T04:00")) == "06-09-2026 01:00"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-07-15T15:30:00", "2026-07-15T19:30"),
        ("2026-07-15T15:30:00.247", "2026-07-15T19:30"),
        (" 15-07-2026 15:30 ", "2026-07-15T19:30"),
        ("9999-12-31T20:59:59", "9999-12-31T23:59:59"),
        ("9999-12-31T23:59:59", None),  # later than any moment in UTC
        ("15/07/2026", None),
        ("", None),
    ],
)
def test_times_of_the_sources_are_read(text: str, moment: str | None) -> None:
    assert read_local(text) == (utc(moment) if moment else None)


@pytest.mark.parametrize(
    ("now", "days"),
    [
        ("2026-07-15T04:00", ["2026-07-14", "2026-07-15"]),  # 00:00
        ("2026-07-16T03:59", ["2026-07-14", "2026-07-15"]),  # 23:59
        ("2026-09-06T04:30", ["2026-09-05", "2026-09-06"]),  # 01:30, half an hour after that day began
        ("2026-04-05T03:30", ["2026-04-03", "2026-04-04"]),  # 23:30, for the second time
        ("2026-04-05T04:10", ["2026-04-04", "2026-04-05"]),
    ],
)
def test_yesterday_and_today_are_asked_for(now: str, days: list[str]) -> None:
    assert [day.isoformat() for day in days_to_ask(utc(now))] == days


@pytest.mark.parametrize(
    ("after", "slots"),
    [
        # The day of 25 hours, and the next.
        ("2026-04-04T04:00", ["2026-04-04T06:17", "2026-04-05T07:17", "2026-04-06T07:17"]),
        # The day before that of 23 hours, and the next.
        ("2026-09-05T04:00", ["2026-09-05T07:17", "2026-09-06T06:17", "2026-09-07T06:17"]),
    ],
)
def test_the_cleanup_is_at_the_same_local_time_when_the_clocks_change(after: str, slots: list[str]) -> None:
    at = utc(after)
    found: list[datetime] = []
    for _ in slots:
        at = NIGHTS["CLEANUP_CRON"].next(at)
        found.append(at)
    assert found == [utc(slot) for slot in slots]
    assert {written(slot)[-5:] for slot in found} == {"03:17"}
