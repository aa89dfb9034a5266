"""The clock of Santiago, with its daylight saving. Times are stored in UTC; only people and sources use this clock.

The clocks change at midnight. On a night in September there is no 00:00: the day begins at 01:00. On a night in April
the hour from 23:00 to 24:00 comes twice, and the day has 25 hours.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

SANTIAGO = ZoneInfo("America/Santiago")


def today(now: datetime) -> date:
    """Return the day that it is in Santiago.

    >>> today(datetime(2026, 7, 2, 3, 59, tzinfo=UTC)), today(datetime(2026, 7, 2, 4, 0, tzinfo=UTC))
    (datetime.date(2026, 7, 1), datetime.date(2026, 7, 2))
    """
    return now.astimezone(SANTIAGO).date()


def bounds(day: date) -> tuple[datetime, datetime]:
    """Return when a day begins and ends in Santiago, in UTC."""
    begin, end = (datetime.combine(each, time.min, SANTIAGO).astimezone(UTC) for each in (day, day + timedelta(days=1)))
    return begin, end


def days_to_ask(now: datetime) -> list[date]:
    """Return the days whose tenders a cycle asks for: yesterday and today.

    The API lists a tender under the day of its publication. With yesterday, an outage over midnight loses none.
    """
    day = today(now)
    return [day - timedelta(days=1), day]


def from_local(wall: datetime) -> datetime:
    """Return the moment, in UTC, at which the clock of Santiago shows this time.

    Of a time that comes twice it is the first: a tender must not seem open when it is closed. A time that is skipped is
    read as so much later as the clocks were set forward.
    """
    return wall.replace(tzinfo=SANTIAGO, fold=0).astimezone(UTC)


def read_local(text: str) -> datetime | None:
    """Return the moment of a time as the sources write it: `2026-04-04T15:30:00` or `04-04-2026 15:30`.

    >>> read_local("04-04-2026 15:30") == read_local("2026-04-04T15:30:00") == datetime(2026, 4, 4, 18, 30, tzinfo=UTC)
    True
    """
    for form in ("%Y-%m-%dT%H:%M:%S", "%d-%m-%Y %H:%M"):
        try:
            return from_local(datetime.strptime(text.strip().partition(".")[0], form))  # noqa: DTZ007 - the zone follows
        except (ValueError, OverflowError):  # the last hours of the year 9999 have no moment in UTC
            continue
    return None


def written(at: datetime) -> str:
    """Return a moment as people in Santiago write it.

    >>> written(datetime(2026, 4, 4, 18, 30, tzinfo=UTC))
    '04-04-2026 15:30'
    """
    return f"{at.astimezone(SANTIAGO):%d-%m-%Y %H:%M}"
