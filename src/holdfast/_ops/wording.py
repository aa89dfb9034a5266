"""Values in a few words for people: times, durations, counts and states, the same in the terminal and in commands."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Tone: TypeAlias = Literal["plain", "good", "warn", "bad", "dim"]

NOTHING = "-"
# Stored text must not move the cursor or hide what follows it.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_STEPS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"))
_EXACT_BELOW = 10_000
_STATES: Mapping[Tone, tuple[str, ...]] = {
    "good": ("completed", "done", "live", "ok"),
    "warn": ("note", "paused", "processing", "retry"),
    "bad": ("failed", "lost", "silent", "wrong"),
    "dim": ("blocked", "cancelled", "default", "stopped", "unset"),
}
_TONES = {state: tone for tone, states in _STATES.items() for state in states}


def tone_of(state: str | None) -> Tone:
    """Return how a state is shown, whatever has it: a job, a run, a worker, a queue, a check."""
    return _TONES.get(state or "", "plain")


def plain(text: str, limit: int = 40) -> str:
    """Return stored text as one line without control characters, cut to `limit` characters."""
    shown = _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text[: 4 * limit])
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def stamp(time: datetime) -> str:
    """Return a time in UTC: `2026-11-15 07:30:00Z`."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


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


def share(part: int, whole: int) -> str:
    """Return a percentage. Anything above zero is shown as at least 0.1%."""
    if not part:
        return "0%"
    percent = 100 * part / whole
    return f"{percent:.0f}%" if percent >= 10 else f"{max(percent, 0.1):.1f}%"  # noqa: PLR2004 - as above


def counted(number: int, one: str) -> str:
    """Return a number with its noun in singular or plural: `1 queue`, `2,000 queues`."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}s"


def counts(run: Mapping[str, int]) -> str:
    """Return the counts of a run that are not zero: `12 deleted, 1 kept`."""
    return ", ".join(f"{count} {what}" for what, count in run.items() if count)
