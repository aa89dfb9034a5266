from __future__ import annotations

import contextlib
import pickle
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast._model.schedule import Cron, Every, InvalidSchedule, Schedule, parse

MS = timedelta(milliseconds=1)
MINUTE = timedelta(minutes=1)
YEAR = 2024
# Clocks go forward in the night before each first date, and back in the night before each second.
CHANGES = {
    "Europe/Warsaw": [(3, 31), (10, 27)],
    "America/Santiago": [(9, 8), (4, 7)],  # at midnight: that day has no 00:00, and the day before has 23:00 twice
    "Africa/Cairo": [(4, 26), (11, 1)],
    "Australia/Lord_Howe": [(10, 6), (4, 7)],  # by half an hour
}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def times(schedule: Schedule, after: str, count: int, tz: str = "UTC") -> list[str]:
    found, now = [], at(after)
    for _ in range(count):
        now = schedule.next(now)
        found.append(now.astimezone(ZoneInfo(tz)).isoformat(timespec="minutes"))
    return found


aware = st.datetimes(datetime(1960, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - as asked
intervals = st.integers(1, 366 * 86_400_000).map(lambda n: n * MS)


@given(intervals, aware, st.floats(0, 1))
@example(timedelta(seconds=7), at("1969-12-31T23:59:58+00:00"), 0.5)
def test_every_moment_of_a_slot_names_the_same_slot_and_the_same_next(
    interval: timedelta, now: datetime, part: float
) -> None:
    every = Every(interval)
    slot = every.slot(now)
    assert slot <= now < every.next(now) == slot + interval
    assert every.slot(slot) == slot
    inside = min(slot + interval * part, slot + interval - timedelta(microseconds=1))
    assert every.slot(inside) == slot
    assert every.next(inside) == every.next(now)


def test_slots_are_counted_in_utc_whatever_the_zone_asked_in() -> None:
    every = Every(timedelta(hours=24))
    assert every.slot(at("2026-05-01T01:00:00+02:00")).isoformat() == "2026-04-30T00:00:00+00:00"
    assert Every(timedelta(minutes=2)).slot(at("2026-05-01T12:03:20+00:00")) == at("2026-05-01T12:02:00+00:00")


@pytest.mark.parametrize(
    ("interval", "output"),
    [
        (timedelta(0), "from 1 ms to 366 days"),
        (-MS, "from 1 ms to 366 days"),
        (timedelta(microseconds=1500), "an interval is in whole milliseconds, got 0.001500 s"),
        (timedelta(days=366) + MS, "from 1 ms to 366 days"),
        (timedelta.max, "from 1 ms to 366 days"),
    ],
)
def test_an_interval_is_bounded_and_in_whole_milliseconds(interval: timedelta, output: str) -> None:
    with pytest.raises(InvalidSchedule, match=output):
        Every(interval)


@pytest.mark.parametrize("schedule", [Every(timedelta(minutes=1)), Cron("0 2 * * *")])
def test_a_time_without_a_zone_is_refused(schedule: Schedule) -> None:
    with pytest.raises(ValueError, match="aware"):
        schedule.next(datetime(2026, 1, 1))  # noqa: DTZ001 - the point of the test


def test_cron_is_read_in_its_time_zone_and_answers_in_utc() -> None:
    nightly = Cron("17 3 * * *", tz="America/Santiago")
    assert nightly.next(at("2026-01-01T00:00:00+00:00")).isoformat() == "2026-01-01T06:17:00+00:00"
    assert nightly.next(at("2026-07-01T00:00:00+00:00")).isoformat() == "2026-07-01T07:17:00+00:00"
    assert Cron("17 3 * * *").next(at("2026-01-01T03:17:00+00:00")).isoformat() == "2026-01-02T03:17:00+00:00"
    assert Cron("17 3 * * *").next(at("2026-01-01T03:16:59.999999+00:00")) == at("2026-01-01T03:17:00+00:00")


def test_a_named_time_that_is_skipped_runs_once_when_the_gap_ends() -> None:
    warsaw = Cron("30 2 * * *", tz="Europe/Warsaw")
    assert times(warsaw, "2024-03-29T12:00:00+00:00", 3, "Europe/Warsaw") == [
        "2024-03-30T02:30+01:00",
        "2024-03-31T03:00+02:00",
        "2024-04-01T02:30+02:00",
    ]
    santiago = Cron("15 0 * * *", tz="America/Santiago")
    assert times(santiago, "2024-09-06T12:00:00+00:00", 3, "America/Santiago") == [
        "2024-09-07T00:15-04:00",
        "2024-09-08T01:00-03:00",
        "2024-09-09T00:15-03:00",
    ]


def test_a_named_time_that_comes_twice_runs_the_first_time_only() -> None:
    warsaw = Cron("30 2 * * *", tz="Europe/Warsaw")
    assert times(warsaw, "2024-10-26T12:00:00+00:00", 2, "Europe/Warsaw") == [
        "2024-10-27T02:30+02:00",
        "2024-10-28T02:30+01:00",
    ]
    santiago = Cron("30 23 * * *", tz="America/Santiago")
    assert times(santiago, "2024-04-06T12:00:00+00:00", 2, "America/Santiago") == [
        "2024-04-06T23:30-03:00",
        "2024-04-07T23:30-04:00",
    ]


@pytest.mark.parametrize("minutes", range(0, 60, 10))
def test_asked_within_the_second_pass_the_first_is_over(minutes: int) -> None:
    second_pass = at("2024-10-27T02:00:00+01:00") + timedelta(minutes=minutes)
    for now in (second_pass, second_pass.astimezone(ZoneInfo("Europe/Warsaw"))):
        assert Cron("30 2 * * *", tz="Europe/Warsaw").next(now) == at("2024-10-28T02:30:00+01:00")


def test_a_starred_line_follows_the_clock_on_the_wall() -> None:
    half_hours = Cron("*/30 2 * * *", tz="Europe/Warsaw")
    assert times(half_hours, "2024-10-26T12:00:00+00:00", 5, "Europe/Warsaw") == [
        "2024-10-27T02:00+02:00",
        "2024-10-27T02:30+02:00",
        "2024-10-27T02:00+01:00",
        "2024-10-27T02:30+01:00",
        "2024-10-28T02:00+01:00",
    ]
    assert times(half_hours, "2024-03-30T12:00:00+00:00", 1, "Europe/Warsaw") == ["2024-04-01T02:00+02:00"]


MINUTES = ["*/10", "7,37", "0"]
HOURS = ["*", "*/2", "0", "1-3", "22-23", "2"]
DAYS = ["*", "L", "6-8", "26,31"]


@given(
    st.sampled_from(sorted(CHANGES)),
    st.integers(0, 1),
    st.sampled_from(MINUTES),
    st.sampled_from(HOURS),
    st.sampled_from(DAYS),
)
@example("America/Santiago", 0, "*", "1-3", "6-8")
@example("Australia/Lord_Howe", 1, "*/15", "22-23", "*")
@example("Australia/Lord_Howe", 1, "0", "*/2", "*")
def test_around_a_change_of_the_clocks_every_process_names_the_same_times(
    tz: str, change: int, minute: str, hour: str, day: str
) -> None:
    cron, zone = Cron(f"{minute} {hour} {day} * *", tz=tz), ZoneInfo(tz)
    start = datetime(YEAR, *CHANGES[tz][change], tzinfo=UTC) - timedelta(hours=30)
    end = start + timedelta(hours=60)
    found, now = [], start
    while (now := cron.next(now)) < end:
        found.append(now)
    for earlier, later in list(pairwise([start, *found]))[:: 1 + len(found) // 40]:
        inside = earlier + (later - earlier) / 3
        assert earlier < later == cron.next(inside) == cron.next(later - timedelta(microseconds=1))
    if "*" in (minute[0], hour[0]):
        walls = set(matches(cron.expression, start, end))
        ticks = (start + MINUTE * n for n in range(1, 60 * 60))
        assert found == [tick for tick in ticks if tick.astimezone(zone).replace(tzinfo=None) in walls]


def matches(expression: str, start: datetime, end: datetime) -> list[datetime]:
    """Every clock reading that the expression names, whether it came to be or not."""
    found = []
    for wall in CronSim(expression, (start - timedelta(days=1)).replace(tzinfo=None)):
        if wall > (end + timedelta(days=1)).replace(tzinfo=None):
            break
        found.append(wall)
    return found


def test_the_29th_of_february() -> None:
    leap = Cron("0 12 29 2 *", tz="Europe/Warsaw")
    assert times(leap, "2025-01-01T00:00:00+00:00", 2) == ["2028-02-29T11:00+00:00", "2032-02-29T11:00+00:00"]
    assert times(leap, "2096-03-01T00:00:00+00:00", 1) == ["2104-02-29T11:00+00:00"]
    assert times(Cron("0 0 * 2 MON#5"), "2025-01-01T00:00:00+00:00", 1) == ["2044-02-29T00:00+00:00"]


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (Every(timedelta(minutes=2)), "every 120s"),
        (Every(timedelta(milliseconds=250)), "every 0.25s"),
        (Every(timedelta(milliseconds=1001)), "every 1.001s"),
        (Cron("  17 3  * *\t*", tz="America/Santiago"), "17 3 * * * America/Santiago"),
        (Cron("0 2 * * mon-fri"), "0 2 * * mon-fri UTC"),
    ],
)
def test_what_is_stored_is_read_back(schedule: Schedule, text: str) -> None:
    assert schedule.text == text
    assert parse(text) == schedule
    assert parse(f" {text}\n") == schedule
    assert pickle.loads(pickle.dumps(schedule)) == schedule  # noqa: S301 - our own
    assert hash(parse(text)) == hash(schedule)


@given(intervals)
def test_every_interval_is_read_back(interval: timedelta) -> None:
    assert parse(Every(interval).text) == Every(interval)


def test_an_interval_is_seconds_or_a_timedelta() -> None:
    assert Every(300) == Every(timedelta(minutes=5))
    with pytest.raises(InvalidSchedule, match=r"every: expected seconds or a timedelta, from .*, got str"):
        Every("300")  # type: ignore[arg-type]


def test_a_line_without_a_zone_is_in_utc() -> None:
    assert parse("17 3 * * *") == Cron("17 3 * * *", tz="UTC")


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("", "'': a cron line has 5 fields (minute, hour, day, month, weekday), this has 0"),
        ("@daily", "'@daily': a cron line has 5 fields (minute, hour, day, month, weekday), this has 1"),
        ("0 0 17 3 * * UTC", "'0 0 17 3 * * UTC': a cron line has 5 fields"),
        ("61 * * * *", "'61 * * * *': bad minute"),
        ("0 24 * * *", "'0 24 * * *': bad hour"),
        ("0 0 30 2 *", "'0 0 30 2 *': bad day-of-month"),
        ("0 0 1 13 *", "'0 0 1 13 *': bad month"),
        ("0 0 * * 9", "'0 0 * * 9': bad day-of-week"),
        ("*/0 * * * *", "'*/0 * * * *': bad minute"),
        ("0 0 */31 2 MON#5", "'0 0 */31 2 MON#5' never comes"),
        ("0 0 * * * Mars/Base", "'Mars/Base' is not a time zone known here"),
        ("0 0 * * * ../../etc/passwd", "'../../etc/passwd' is not a time zone known here"),
        ("0 0 * * * America", "'America' is not a time zone known here"),
        ("0 0 * * * localtime", "'localtime' is not a time zone known here"),
        ("every 2 minutes", "'every 2 minutes': an interval is written in seconds, like 'every 120s'"),
        ("every 0s", "every: expected seconds or a timedelta, from 1 ms to 366 days"),
        (",".join("1" * 200) + " * * * *", "a cron line has at most 200 characters"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_reason(text: str, output: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        parse(text)
    assert output in str(refused.value)
    assert len(str(refused.value)) < 500


@given(st.text(alphabet="0123456789*/,-#LWMON every.s", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidSchedule):
        assert parse(parse(text).text) == parse(text)
