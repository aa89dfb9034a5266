"""The colours of the terminal, dark and light. Text has at least the contrast that WCAG AA asks for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from rich.style import Style
from rich.text import Text
from textual.theme import Theme

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._top.cell import Tone


Palette: TypeAlias = "Mapping[Tone, str]"


DARK = "holdfast-dark"


LIGHT = "holdfast-light"


TONES: Mapping[str, Palette] = {
    DARK: {"plain": "#e6e9ee", "good": "#6fd08c", "warn": "#e8b45a", "bad": "#ff8a80", "dim": "#98a2b0"},
    LIGHT: {"plain": "#1c2430", "good": "#136c34", "warn": "#7f5200", "bad": "#b3261e", "dim": "#566070"},
}


THEMES = (
    Theme(
        name=DARK,
        dark=True,
        primary="#5aa9e6",
        secondary="#7fb7d9",
        accent="#5aa9e6",
        success=TONES[DARK]["good"],
        warning=TONES[DARK]["warn"],
        error=TONES[DARK]["bad"],
        foreground=TONES[DARK]["plain"],
        background="#11161d",
        surface="#161c25",
        panel="#232c38",
        variables={"footer-key-foreground": "#8cc6f2", "block-cursor-background": "#1f4f7a", "dim": TONES[DARK]["dim"]},
    ),
    Theme(
        name=LIGHT,
        dark=False,
        primary="#0b5cad",
        secondary="#2b6f94",
        accent="#0b5cad",
        success=TONES[LIGHT]["good"],
        warning=TONES[LIGHT]["warn"],
        error=TONES[LIGHT]["bad"],
        foreground=TONES[LIGHT]["plain"],
        background="#ffffff",
        surface="#f7f9fb",
        panel="#e4e9f0",
        variables={
            "footer-key-foreground": "#0b5cad",
            "block-cursor-background": "#0b5cad",
            "dim": TONES[LIGHT]["dim"],
        },
    ),
)


def paint(text: str, tone: Tone, palette: Palette, *, bold: bool = False) -> Text:
    return Text(text, Style(color=palette[tone], bold=bold or None))


def theme_of(environ: Mapping[str, str] = os.environ) -> str:
    """Return the theme for the background in COLORFGBG (`15;0`), dark if it is not set."""
    ground = environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT if ground in {"7", "15"} else DARK
