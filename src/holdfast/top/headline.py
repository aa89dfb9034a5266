"""What stands above the tables: whether all is well, the figures of the hour, and its course minute by minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from holdfast.top.cell import compact, plain, share, span
from holdfast.top.palette import paint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.ops.answer import Minute, Overview, Problem
    from holdfast.top.cell import Tone
    from holdfast.top.palette import Palette

_BARS = " ▁▂▃▄▅▆▇█"
_STEPS = len(_BARS) - 1
_LABEL = 8
_RATE = 12
_PROBLEMS = 2


class Trouble(NamedTuple):
    """Why nothing new is known."""

    says: str
    since: float
    """When it began, by the clock of the event loop."""
    is_outage: bool
    """True: it is tried again and again, and what is shown is old. False: the answer would be the same."""


class Frame(NamedTuple):
    """What there is to draw in, and with."""

    where: str
    """The database, as it is shown."""
    width: int
    palette: Palette


def verdict(overview: Overview | None, trouble: Trouble | None, clock: float, frame: Frame) -> Text:
    """Say in one line whether all is well; what is not is said in lines below it."""
    palette = frame.palette
    if trouble is not None:
        lines = [_between(_outage(trouble, clock, palette), frame.where, frame)]
        if overview is not None:
            lines.append(paint(f"   shown is what was known at {overview.at:%H:%M:%S}Z", "dim", palette))
    elif overview is None:
        lines = [_between(paint("… asking the database", "dim", palette), frame.where, frame)]
    else:
        right = f"{frame.where} {overview.at:%H:%M:%S}Z"
        lines = [_between(_judged(overview, palette), right, frame), *_problems(overview, palette)]
    for line in lines:
        line.truncate(frame.width, overflow="ellipsis")
    return Text("\n").join(lines)


def _outage(trouble: Trouble, clock: float, palette: Palette) -> Text:
    if not trouble.is_outage:
        return paint(f"✘ {plain(trouble.says, 300)}", "bad", palette, bold=True)
    return paint(f"✘ {plain(trouble.says, 300)} ({span(max(1.0, clock - trouble.since))})", "bad", palette, bold=True)


def _judged(overview: Overview, palette: Palette) -> Text:
    if overview.ok and not overview.problems:
        return paint("✔ all is well", "good", palette, bold=True)
    critical = sum(problem.severity == "critical" for problem in overview.problems)
    many = len(overview.problems)
    said = f"{'✘' if critical else '!'} {many} {'problem' if many == 1 else 'problems'}"
    return paint(said, "bad" if critical else "warn", palette, bold=True)


def _problems(overview: Overview, palette: Palette) -> Iterable[Text]:
    worst = worst_first(overview.problems)
    for problem in worst[:_PROBLEMS]:
        yield paint(f"   {plain(problem.text, 300)}", "bad" if problem.severity == "critical" else "warn", palette)
    if len(worst) > _PROBLEMS:
        yield paint(f"   and {len(worst) - _PROBLEMS} more: press !", "dim", palette)


def worst_first(problems: Sequence[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: problem.severity != "critical")


def figures(overview: Overview, frame: Frame) -> Text:
    """Say the figures of now and of the hour, the most telling first: what does not fit is left out."""
    palette = frame.palette
    depth, ended = overview.depth, overview.completed + overview.failed
    facts: list[tuple[str, Tone]] = [
        (
            f"{overview.workers} {'worker' if overview.workers == 1 else 'workers'}",
            "plain" if overview.workers else "bad",
        ),
        (f"{compact(depth.due)} due", "plain"),
        (f"oldest {span(depth.oldest_due_seconds)}" if depth.due else "none waits", "plain"),
        (f"{compact(depth.processing)} running", "plain"),
        (f"{share(overview.failed, ended)} failed", "bad" if overview.failed else "plain"),
        (f"p95 {_latency(overview.latency.p95)}", "plain"),
        (f"p99 {_latency(overview.latency.p99)}", "plain"),
        (f"{compact(overview.retried)} retried", "plain"),
        (f"{compact(depth.blocked)} blocked", "plain"),
        (f"relays {compact(overview.relay_lag_events)} behind", "plain"),
    ]
    line = Text(" ")
    for said, tone in facts:
        if line.cell_len + len(said) + 3 > frame.width:
            break
        line += Text.assemble(paint(" · " if line.cell_len > 1 else "", "dim", palette), paint(said, tone, palette))
    return line


def _latency(seconds: float | None) -> str:
    return "-" if seconds is None else span(seconds)


def course(minutes: Sequence[Minute], frame: Frame) -> Text:
    """Draw what was done and what failed, a bar for each minute, the newest on the right."""
    palette = frame.palette
    room = max(1, frame.width - _LABEL - _RATE)
    lines: list[tuple[str, list[int], Tone]] = [
        ("done", [minute.completed for minute in minutes], "good"),
        ("failed", [minute.failed for minute in minutes], "bad"),
    ]
    return Text("\n").join(
        Text.assemble(
            paint(f"{' ' + label:<{_LABEL}}", "dim", palette),
            paint(bars(counts, room), tone, palette),
            paint(f"{_rate(counts) + '/min ':>{_RATE}}", "plain", palette),
        )
        for label, counts, tone in lines
    )


def _rate(counts: Sequence[int]) -> str:
    """Say the last whole minute: the present one has only begun."""
    return compact(counts[-2] if len(counts) > 1 else 0)


def bars(counts: Sequence[int], room: int) -> str:
    """Draw counts from nought up over the whole room; where there is too little, the oldest are left out.

    A full bar is the highest of them, and never less than eight: a single failure is no tower.
    """
    shown = counts[-room:]
    if not shown:
        return " " * room
    full = max(_STEPS, *shown)
    return "".join(_bar(shown[place * len(shown) // room], full) for place in range(room))


def _bar(count: int, full: int) -> str:
    """Draw one count; what is not nothing is always seen."""
    return _BARS[max(1, round(_STEPS * count / full))] if count else _BARS[0]


def _between(left: Text, right: str, frame: Frame) -> Text:
    """Set one text left and another right; where both do not fit, the left one alone."""
    gap = frame.width - left.cell_len - len(right) - 2
    if gap < 1:
        return Text.assemble(" ", left)
    return Text.assemble(" ", left, " " * gap, paint(right, "dim", frame.palette))
