"""Cells: a value in a few characters, with its tone and what a column is sorted by; and the colours of the tones.

Text has at least the contrast that WCAG AA asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rich.style import Style
from rich.text import Text
from textual.theme import Theme

from holdfast._ops.wording import NOTHING, compact, plain, since, span, tone_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from holdfast._ops.wording import Tone

TONES: Mapping[Tone, str] = {
    "plain": "#e6e9ee", "good": "#6fd08c", "warn": "#e8b45a", "bad": "#ff8a80", "dim": "#98a2b0"
}  # fmt: skip
THEME = Theme(
    name="holdfast",
    primary="#5aa9e6",
    secondary="#7fb7d9",
    accent="#5aa9e6",
    success=TONES["good"],
    warning=TONES["warn"],
    error=TONES["bad"],
    foreground=TONES["plain"],
    background="#11161d",
    surface="#161c25",
    panel="#232c38",
    variables={"footer-key-foreground": "#8cc6f2", "block-cursor-background": "#1f4f7a", "dim": TONES["dim"]},
)


class Cell(NamedTuple):
    """One value of a table. Rows sort by `order`; None sorts last."""

    text: str
    order: Any = None
    tone: Tone = "plain"


def word(value: str | None, tone: Tone = "plain") -> Cell:
    return Cell(plain(value), value.casefold(), tone) if value else Cell(NOTHING, "", "dim")


def state(value: str | None) -> Cell:
    return word(value, tone_of(value))


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


def paint(text: str, tone: Tone, *, bold: bool = False) -> Text:
    return Text(text, Style(color=TONES[tone], bold=bold or None))
