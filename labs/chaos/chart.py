"""Pictures of a run as SVG, in the manner of bench.chart."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from labs.bench.chart import BOTTOM, COLOURS, GREY, LEFT, LINES, TOP, WIDTH, _round_up, _text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from labs.chaos.recovery import Recovery

HEIGHT = 340
ROW = 20
BAND = 16
MOST_POINTS = 300
NAMES = 250
RED = "#dc2626"


def timeline(title: str, points: Sequence[tuple[float, float]], recoveries: Sequence[Recovery]) -> str:
    """Return how many jobs ended by second, over a band of faults: when they were on, and when recovered from."""
    points = _means(points)
    right = max([x for x, _ in points] + [one.healed + one.seconds for one in recoveries] + [1.0])
    top = _round_up(max((y for _, y in points), default=1))
    width, floor = WIDTH - LEFT - 20, HEIGHT - BOTTOM - BAND
    height = floor - TOP

    def x_of(x: float) -> float:
        return LEFT + width * x / right

    parts = [_text(LEFT, 20, title), _text(LEFT - 8, floor + BAND - 4, "faults", anchor="end")]
    for one in recoveries:
        begun, healed, over = x_of(one.begun), x_of(one.healed), x_of(one.healed + one.seconds)
        parts.append(_box((begun, floor + 4), (max(healed - begun, 0.6), BAND - 4), RED, one.name, 0.8))
        parts.append(_box((healed, floor + 4), (max(over - healed, 0.3), BAND - 4), COLOURS[1], one.name, 0.45))
    for step in range(LINES + 1):
        y, x = floor - height * step / LINES, x_of(right * step / LINES)
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + width}" y2="{y:.1f}" stroke="{GREY}" opacity="0.35"/>'
        )
        parts.append(_text(LEFT - 8, y + 4, f"{top * step / LINES:,.0f}", anchor="end"))
        parts.append(_text(x, HEIGHT - BOTTOM + 18, f"{right * step / LINES:,.0f}", anchor="middle"))
    parts.append(
        _text(
            LEFT + width / 2, HEIGHT - 8, "seconds; red: a fault is on, orange: being recovered from", anchor="middle"
        )
    )
    path = " ".join(f"{x_of(x):.1f},{floor - height * y / top:.1f}" for x, y in points)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[0]}" stroke-width="1.5"/>')
    return _svg(title, parts, HEIGHT)


def _means(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return no more points than can be distinguished, each the mean of its neighbours."""
    step = -(-len(points) // MOST_POINTS) or 1
    parts = [points[at : at + step] for at in range(0, len(points), step)]
    return [(part[0][0], sum(y for _, y in part) / len(part)) for part in parts]


def spread(title: str, x_label: str, rows: Mapping[str, Sequence[float]], bound: float) -> str:
    """Return a line of dots for each name, and the bound that none of them may pass."""
    height = TOP + ROW * len(rows) + BOTTOM
    right = _round_up(max([bound, *(value for values in rows.values() for value in values)]))
    width = WIDTH - NAMES - 30

    def x_of(value: float) -> float:
        return NAMES + width * value / right

    parts = [_text(20, 20, title)]
    for step in range(LINES + 1):
        x = x_of(right * step / LINES)
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{height - BOTTOM}" stroke="{GREY}" opacity="0.3"/>'
        )
        parts.append(_text(x, height - BOTTOM + 18, f"{right * step / LINES:g}", anchor="middle"))
    x = x_of(bound)
    parts.append(
        f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{height - BOTTOM}" stroke="{RED}" stroke-width="1.5"/>'
    )
    parts.append(_text(x + 4, TOP + 10, f"bound {bound:g}", colour=RED))
    for number, (name, values) in enumerate(rows.items()):
        y = TOP + ROW * number + ROW / 2
        parts.append(_text(NAMES - 8, y + 4, name, anchor="end"))
        parts += [f'<circle cx="{x_of(v):.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[0]}" opacity="0.45"/>' for v in values]
    parts.append(_text(NAMES + width / 2, height - 8, x_label, anchor="middle"))
    return _svg(title, parts, height)


def bars(title: str, rows: Mapping[str, int]) -> str:
    """Return a bar for each name, with its number at the end."""
    height = TOP + ROW * len(rows) + 12
    right = max([*rows.values(), 1])
    width = WIDTH - NAMES - 70
    parts = [_text(20, 20, title)]
    for number, (name, count) in enumerate(rows.items()):
        y = TOP + ROW * number
        parts.append(_text(NAMES - 8, y + ROW / 2 + 4, name, anchor="end"))
        parts.append(_box((NAMES, y + 3), (width * count / right, ROW - 6), COLOURS[0], name, 0.8))
        parts.append(_text(NAMES + width * count / right + 6, y + ROW / 2 + 4, f"{count:,}"))
    return _svg(title, parts, height)


def _box(at: tuple[float, float], size: tuple[float, float], colour: str, title: str, opacity: float = 0.18) -> str:
    place = f'x="{at[0]:.1f}" y="{at[1]:.1f}" width="{size[0]:.1f}" height="{size[1]:.1f}"'
    return f'<rect {place} fill="{colour}" opacity="{opacity}"><title>{escape(title)}</title></rect>'


def _svg(title: str, parts: Sequence[str], height: float) -> str:
    box = f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="system-ui, sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {box}>'
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>\n"])
