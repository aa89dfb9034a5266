"""Durations: the public API takes seconds or a timedelta, and this is where both become a timedelta."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

Duration: TypeAlias = float | timedelta
"""A number of seconds, whole or not, or a timedelta."""

ZERO = timedelta(0)
MORE_THAN_ZERO = timedelta.resolution
MILLISECOND = timedelta(milliseconds=1)
DAY = timedelta(days=1)
LONGEST = timedelta(days=366)

# Larger numbers are not shown: Python refuses to write some of them.
_LARGEST_SHOWN = 10**15


def or_timedelta(value: object) -> object:
    """Return a number of seconds as a timedelta, and any other value, or a number out of range, as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LONGEST.total_seconds():
        return value
    return timedelta(seconds=value)


def as_timedelta(  # noqa: PLR0913 - one keyword per rule
    name: str,
    value: object,
    *,
    least: timedelta = ZERO,
    limit: timedelta = LONGEST,
    others: str = "",
    error: type[Exception] | None = None,
) -> timedelta:
    """Return the duration as a timedelta, or raise an error that shows what the argument `name` may be.

    `least` and `limit`: the range. Default: 0 to 366 days. `others`: other types that the argument takes. `error`: the
    class to raise. Default: TypeError for another type, ValueError for a value out of range.

    >>> as_timedelta("delay", 1.5)
    datetime.timedelta(seconds=1, microseconds=500000)
    """
    if isinstance(value, timedelta):
        if least <= value <= limit:
            return value
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise (error or TypeError)(_message(name, type(value).__name__, least, limit, others))
    # A comparison with NaN is false. One with a huge number is exact, but it cannot become a timedelta.
    elif least.total_seconds() <= value <= limit.total_seconds():
        return timedelta(seconds=value)
    raise (error or ValueError)(_message(name, _shown(value), least, limit, others))


def _message(name: str, got: str, least: timedelta, limit: timedelta, others: str) -> str:
    span = (
        f"more than 0 to {_span_text(limit)}"
        if least == MORE_THAN_ZERO
        else f"{_span_text(least)} to {_span_text(limit)}"
    )
    return f"{name}: expected seconds or a timedelta{others}, from {span}, like 30 or timedelta(minutes=5), got {got}"


def _shown(value: float | timedelta) -> str:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if abs(seconds) > _LARGEST_SHOWN:
        return "a number above 10^15" if seconds > 0 else "a number below -10^15"
    return f"{seconds:.15g} s"


def _span_text(span: timedelta) -> str:
    if span >= DAY:
        return "1 day" if span == DAY else f"{span / DAY:g} days"
    if not span:
        return "0"
    return f"{span / MILLISECOND:g} ms" if span < timedelta(seconds=1) else f"{span.total_seconds():g} s"
