"""Schedules: compute in UTC when recurring work runs, from an interval or a crontab line."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

import cronsim

from holdfast._model.call import explains
from holdfast._model.duration import LONGEST, MILLISECOND, as_timedelta
from holdfast._model.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._model.duration import Duration

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS = 5
_TEXT_LIMIT = 200
_EVERY = re.compile(r"every ([0-9]{1,8})(?:\.([0-9]{1,3}))?s")
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_MOST_SLOTS = 4096
_slots: dict[str, tuple[datetime, datetime]] = {}
"""By schedule: a time, and the first slot after it."""


class InvalidSchedule(HoldfastError, ValueError):  # noqa: N818 - names describe what happened
    """This is not a schedule.

    Cure: Write `Every(300)` or `Cron("30 2 * * *")`.
    """


@explains
@dataclass(frozen=True, slots=True, init=False)
class Every:
    """A schedule with slots of equal length, counted from 1970 in UTC, so that all processes compute the same slots.

    The interval is given in seconds or as a timedelta.

    >>> Every(120).next(datetime(2026, 5, 1, 12, 3, 20, tzinfo=UTC)).isoformat()
    '2026-05-01T12:04:00+00:00'
    """

    interval: timedelta
    """From 1 ms to 366 days, in whole ms."""

    def __init__(self, interval: Duration) -> None:
        given = as_timedelta("every", interval, least=MILLISECOND, limit=LONGEST, error=InvalidSchedule)
        if given % MILLISECOND:
            raise InvalidSchedule(f"every: an interval is in whole milliseconds, got {given.total_seconds():.6f} s")
        object.__setattr__(self, "interval", given)

    def next(self, after: datetime) -> datetime:
        """Return the first slot later than `after`."""
        return self.slot(after) + self.interval

    def slot(self, now: datetime) -> datetime:
        """Return the latest slot at or before `now`."""
        return _EPOCH + (_aware(now) - _EPOCH) // self.interval * self.interval

    @property
    def text(self) -> str:
        """The schedule as it is stored: `every 120s`, `every 0.25s`."""
        seconds, rest = divmod(self.interval // MILLISECOND, 1000)
        return f"every {seconds}{f'.{rest:03}'.rstrip('0') if rest else ''}s"


@explains
@dataclass(frozen=True, slots=True)
class Cron:
    """A crontab line of five fields, read in a time zone.

    When clocks change, a line with fixed minutes and hours still runs once a day: at the end of the gap if its time is
    skipped, and the first time if it occurs twice. A line whose minute or hour begins with `*` follows the local clock:
    skipped times do not run, and repeated times run again.

    >>> Cron("17 3 * * *", tz="America/Santiago").next(datetime(2026, 5, 1, tzinfo=UTC)).isoformat()
    '2026-05-01T07:17:00+00:00'
    """

    expression: str
    _: KW_ONLY
    tz: str = "UTC"
    """A name of the IANA time zone database. Default: UTC."""

    def __post_init__(self) -> None:
        fields = self.expression.split()
        object.__setattr__(self, "expression", " ".join(fields))
        if len(fields) != _FIELDS:
            raise InvalidSchedule(
                f"{_shown(self.expression)}: a cron line has 5 fields (minute, hour, day, month, weekday), "
                f"this has {len(fields)}: write it like '30 2 * * 1-5'"
            )
        if len(self.text) > _TEXT_LIMIT:
            raise InvalidSchedule(f"{_shown(self.expression)}: a cron line has at most {_TEXT_LIMIT} characters")
        _zone(self.tz)
        self.next(_EPOCH)

    def next(self, after: datetime) -> datetime:
        """Return the first time later than `after`."""
        minute, hour, *_ = self.expression.split()
        by_the_wall = minute.startswith("*") or hour.startswith("*")
        search = self._next_by_the_wall if by_the_wall else self._next_named
        try:
            return search(_aware(after), _zone(self.tz))
        except StopIteration:
            raise InvalidSchedule(f"{self.expression!r} never comes") from None

    @property
    def text(self) -> str:
        """The schedule as it is stored: `17 3 * * * America/Santiago`."""
        return f"{self.expression} {self.tz}"

    def _next_named(self, after: datetime, zone: tzinfo) -> datetime:
        walls = self._from(after.astimezone(zone))
        # In the second pass of a repeated hour, cronsim returns the time of the first pass.
        return next(at for wall in walls if (at := wall.astimezone(UTC)) > after)

    def _next_by_the_wall(self, after: datetime, zone: tzinfo) -> datetime:
        """Search between clock changes: given the zone, cronsim may miss a match at a change."""
        since = after
        while True:
            offset = _offset(since, zone)
            at = next(self._from((after + offset).replace(tzinfo=None))).replace(tzinfo=UTC) - offset
            change = _first_change(since, at, zone)
            if change is None:
                return at
            since, after = change, change - _SECOND

    def _from(self, wall: datetime) -> Iterator[datetime]:
        try:
            times: Iterator[datetime] = cronsim.CronSim(self.expression, wall)
        except cronsim.CronSimError as error:
            reason = str(error).lower()
            raise InvalidSchedule(f"{self.expression!r}: {reason}: write it like '30 2 * * 1-5'") from error
        return times


Schedule = Every | Cron
Missed: TypeAlias = Literal["run", "skip"]


def check_schedule(every: object) -> None:
    """Raise a TypeError that shows the right spelling unless `every` is a schedule."""
    if not isinstance(every, Every | Cron):
        raise TypeError(f'every: write every=Every(3600) or every=Cron("0 2 * * *"), not {type(every).__name__}')


def check_missed(missed: object) -> None:
    """Raise a ValueError with the choices unless `missed` is one of them."""
    if missed not in get_args(Missed):
        raise ValueError(f"missed: expected one of {', '.join(get_args(Missed))}, got {missed!r:.40}")


def parse(text: str) -> Schedule:
    """Return the schedule from its `.text`; a cron line without a time zone is in UTC.

    >>> parse("every 120s")
    Every(interval=datetime.timedelta(seconds=120))
    """
    if every := _EVERY.fullmatch(text.strip()):
        seconds, fraction = every.groups(default="")
        return Every(timedelta(seconds=int(seconds), milliseconds=int(fraction.ljust(3, "0"))))
    if text.lstrip().startswith("every"):
        raise InvalidSchedule(f"{_shown(text)}: an interval is written in seconds, like 'every 120s' or 'every 0.25s'")
    *fields, last = text.split() or [""]
    return Cron(" ".join(fields), tz=last) if len(fields) == _FIELDS else Cron(text)


def next_slot(text: str, now: datetime) -> datetime:
    """Return the first slot after `now`. To search a crontab for each look at a thousand schedules takes too long."""
    since, at = _slots.get(text, (now, now))
    if not since <= now < at:
        at = parse(text).next(now)
        if len(_slots) == _MOST_SLOTS:
            _slots.clear()
        _slots[text] = now, at
    return at


def _aware(at: datetime) -> datetime:
    """Convert to UTC: Python compares two times of one zone by their local clocks, which fails in a repeated hour."""
    if at.tzinfo is None:
        raise ValueError("a time without a time zone says nothing: give an aware datetime")
    return at.astimezone(UTC)


def _offset(at: datetime, zone: tzinfo) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta(0)


def _first_change(after: datetime, until: datetime, zone: tzinfo) -> datetime | None:
    """Return the first time whose UTC offset differs from that at `after`; None if there is none up to `until`."""
    offset, start = _offset(after, zone), after.replace(microsecond=0)
    while _offset(end := min(start + _DAY, until), zone) == offset:
        if end == until:
            return None
        start = end
    while (seconds := (end - start) // _SECOND) > 1:
        middle = start + seconds // 2 * _SECOND
        start, end = (middle, end) if _offset(middle, zone) == offset else (start, middle)
    return end


def _zone(name: str) -> tzinfo:
    try:
        if name != "localtime":  # it differs from machine to machine
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        pass
    raise InvalidSchedule(
        f"{_shown(name)} is not a time zone known here: use a name like 'Europe/Warsaw' (without system time zones: "
        f"pip install tzdata)"
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= _TEXT_LIMIT else text[: _TEXT_LIMIT - 1] + "…")
