"""The result of a measurement: figures, each with its bar, and tables for the document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Verdict = Literal["ok", "short", ""]


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    least: float | None = None
    """At least this much is wanted."""
    limit: float | None = None
    """At most this much is wanted. With neither, the figure is for information."""
    unit: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.least is None and self.limit is None:
            return ""
        enough = (self.least is None or self.value >= self.least) and (self.limit is None or self.value <= self.limit)
        return "ok" if enough else "short"

    @property
    def bar(self) -> str:
        if self.least is not None and self.limit is not None:
            return f"{_number(self.least)} to {_number(self.limit)}{self.unit}"
        if self.least is not None:
            return f"≥ {_number(self.least)}{self.unit}"
        return "" if self.limit is None else f"≤ {_number(self.limit)}{self.unit}"

    def row(self) -> tuple[str, str, str, str]:
        return (self.name, f"{_number(self.value)}{self.unit}", self.bar, self.verdict)


@dataclass(frozen=True, slots=True)
class Section:
    """The answer of one measurement."""

    figures: list[Figure]
    tables: list[str] = field(default_factory=list)
    """In Markdown, for the file of tables behind the figures."""
    charts: dict[str, str] = field(default_factory=dict)
    """SVG by file name."""

    def summary(self) -> str:
        """Return what the page shows: the figures and the charts."""
        pictures = [f"![{name}](charts/{name}.svg)" for name in self.charts]
        return "\n\n".join([table(("", "measured", "bar", ""), [figure.row() for figure in self.figures]), *pictures])

    def markdown(self) -> str:
        """Return all of it."""
        return "\n\n".join([self.summary(), *self.tables])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, its columns padded so that it can be read as text too."""
    widths = [max(3, *(len(row[n]) for row in [head, *rows])) for n in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    cells = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
