"""Cells: a value in a few characters, with its tone and what a column is sorted by."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime


Tone: TypeAlias = Literal["plain", "good", "warn", "bad", "dim"]


NOTHING = "-"


# Stored text must not move the cursor or hide what follows it.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


_LONGEST = 40


_STEPS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"))


_EXACT_BELOW = 10_000


class Cell(NamedTuple):
    """One value of a table. Rows sort by `order`; None sorts last."""

    text: str
    order: Any = None
    tone: Tone = "plain"


def plain(text: str, most: int = _LONGEST) -> str:
    """Return stored text as one line without control characters, cut to `most` characters."""
    said = _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text[: 4 * most])
    return said if len(said) <= most else f"{said[: most - 1]}…"


def word(value: str | None, tone: Tone = "plain") -> Cell:
    return Cell(plain(value), value.casefold(), tone) if value else Cell(NOTHING, "", "dim")


def words(values: Iterable[str], tone: Tone = "plain") -> Cell:
    return word(" ".join(values), tone)


def number(value: int | None, tone: Tone = "plain") -> Cell:
    """Return a count. Zero is dimmed, so that other values stand out."""
    if value is None:
        return Cell(NOTHING, None, "dim")
    return Cell(compact(value), value, tone if value else "dim")


def duration(seconds: float | None, tone: Tone = "plain") -> Cell:
    if not seconds:
        return Cell(NOTHING, seconds, "dim")
    return Cell(span(seconds), seconds, tone)


def ago(then: datetime | None, now: datetime) -> Cell:
    if then is None:
        return Cell(NOTHING, None, "dim")
    return Cell(since(then, now), (now - then).total_seconds())


def ahead(then: datetime | None, now: datetime) -> Cell:
    if then is None:
        return Cell(NOTHING, None, "dim")
    left = (then - now).total_seconds()
    return Cell(span(left) if left > 0 else "now", then.timestamp())


def since(then: datetime, now: datetime) -> str:
    return span(max(0.0, (now - then).total_seconds()))


def compact(value: float) -> str:
    """Return a count in at most six characters."""
    if value < _EXACT_BELOW:
        return f"{value:,.0f}"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f}{letter}"
    raise AssertionError(value)


def span(seconds: float) -> str:
    """Return a duration in at most seven characters."""
    if seconds < 1:
        return f"{seconds * 1_000:.0f}ms"
    if seconds < 10:  # noqa: PLR2004 - tenths are still of interest below this
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for size, unit, part, small in _STEPS:
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // part}{small}"
    return f"{whole}s"


def share(part: int, whole: int) -> str:
    """Return a percentage. Anything above zero is shown as at least 0.1%."""
    if not part:
        return "0%"
    percent = 100 * part / whole
    return f"{percent:.0f}%" if percent >= 10 else f"{max(percent, 0.1):.1f}%"  # noqa: PLR2004 - as above
