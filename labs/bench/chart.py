"""Line and bar charts as SVG, readable on light and dark pages."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 36, 44
COLOURS = ("#2563eb", "#dc6803", "#0d9488", "#7c3aed")
GREY = "#808890"
LINES = 4
LINE_HEIGHT = 16


def lines(title: str, x_label: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return a chart of named series of points, from zero; each name stands at the end of its line."""
    right = max((x for points in series.values() for x, _ in points), default=1) or 1
    top = _round_up(max((y for points in series.values() for _, y in points), default=1))

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + (WIDTH - LEFT - RIGHT) * x / right, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / top

    parts = [_text(LEFT, 20, title)]
    for step in range(LINES + 1):
        value = top * step / LINES
        _, y = place(0, value)
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{GREY}" opacity="0.35"/>'
        )
        parts.append(_text(LEFT - 8, y + 4, f"{value:,.0f}", anchor="end"))
        x, _ = place(right * step / LINES, 0)
        parts.append(_text(x, HEIGHT - BOTTOM + 18, f"{right * step / LINES:,.0f}", anchor="middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, anchor="middle"))
    ends = []
    for (name, points), colour in zip(series.items(), COLOURS, strict=False):
        placed = [place(x, y) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        ends.append((placed[-1][1], name, colour))
    lowest = 0.0
    for y, name, colour in sorted(ends):
        lowest = max(y, lowest + LINE_HEIGHT)
        parts.append(_text(WIDTH - RIGHT + 8, lowest + 4, name, colour=colour))
    return _svg(title, HEIGHT, parts)


def bars(title: str, values: Mapping[str, float], *, emphasis: str = "") -> str:
    """Return a chart with a bar for each name, from zero, in the order given; one may be emphasized."""
    left, height = 150, 22
    top = max(values.values(), default=1) or 1
    parts = [_text(LEFT, 20, title)]
    for number, (name, value) in enumerate(values.items()):
        y = TOP + number * height
        colour = COLOURS[0] if name == emphasis else GREY
        width = (WIDTH - left - RIGHT) * value / top
        parts.append(_text(left - 8, y + 14, name, anchor="end", colour=colour))
        parts.append(f'<rect x="{left}" y="{y + 3}" width="{width:.1f}" height="{height - 8}" fill="{colour}"/>')
        parts.append(_text(left + width + 6, y + 14, f"{value:,.2f}" if value < 10 else f"{value:,.0f}", colour=colour))
    return _svg(title, TOP + len(values) * height + 12, parts)


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    box = f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="system-ui, sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {box}>'
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>\n"])


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = GREY) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _round_up(value: float) -> float:
    """Return the next 1, 2, 4 or 8 times a power of ten, so that the grid's numbers are round."""
    power = 1.0
    while power * 10 < value:
        power *= 10
    return next(power * digit for digit in (1, 2, 4, 8, 10) if power * digit >= value)
