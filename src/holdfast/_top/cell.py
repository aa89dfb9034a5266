"""Cells: a value in a few characters, with its tone and what a column is sorted by; and the colours of the tones.

Text has at least the contrast that WCAG AA asks for, on a dark and on a light ground.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rich.style import Style
from rich.text import Text
from textual.theme import Theme

from holdfast._ops.wording import NOTHING, compact, plain, since, span, tone_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from holdfast._ops.wording import Tone

Palette: TypeAlias = "Mapping[Tone, str]"

DARK, LIGHT = "holdfast-dark", "holdfast-light"
TONES: Mapping[str, Palette] = {
    DARK: {"plain": "#e6e9ee", "good": "#6fd08c", "warn": "#e8b45a", "bad": "#ff8a80", "dim": "#98a2b0"},
    LIGHT: {"plain": "#1c2430", "good": "#136c34", "warn": "#7f5200", "bad": "#b3261e", "dim": "#566070"},
}


class Cell(NamedTuple):
    """One value of a table. Rows sort by `order`; None sorts last."""

    text: str
    order: Any = None
    tone: Tone = "plain"


def word(value: str | None, tone: Tone = "plain") -> Cell:
    return Cell(plain(value), value.casefold(), tone) if value else Cell(NOTHING, "", "dim")


def words(values: Iterable[str], tone: Tone = "plain") -> Cell:
    return word(" ".join(values), tone)


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


def _theme(name: str, accent: str, secondary: str, ground: tuple[str, str, str], keys: tuple[str, str]) -> Theme:
    """Return a theme. `ground`: background, surface and panel. `keys`: the footer's keys and the cursor."""
    tones, (background, surface, panel) = TONES[name], ground
    return Theme(
        name=name,
        dark=name == DARK,
        primary=accent,
        secondary=secondary,
        accent=accent,
        success=tones["good"],
        warning=tones["warn"],
        error=tones["bad"],
        foreground=tones["plain"],
        background=background,
        surface=surface,
        panel=panel,
        variables={"footer-key-foreground": keys[0], "block-cursor-background": keys[1], "dim": tones["dim"]},
    )


THEMES = (
    _theme(DARK, "#5aa9e6", "#7fb7d9", ("#11161d", "#161c25", "#232c38"), ("#8cc6f2", "#1f4f7a")),
    _theme(LIGHT, "#0b5cad", "#2b6f94", ("#ffffff", "#f7f9fb", "#e4e9f0"), ("#0b5cad", "#0b5cad")),
)


def paint(text: str, tone: Tone, palette: Palette, *, bold: bool = False) -> Text:
    return Text(text, Style(color=palette[tone], bold=bold or None))


def theme_of(environ: Mapping[str, str] = os.environ) -> str:
    """Return the theme for the background in COLORFGBG (`15;0`), dark if it is not set."""
    ground = environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT if ground in {"7", "15"} else DARK
