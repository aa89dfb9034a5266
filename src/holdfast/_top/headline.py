"""The lines above the tables: the status, the figures of the last hour, and a chart by minute."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from holdfast._ops.wording import compact, counted, plain, share, span
from holdfast._top.cell import paint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast._ops.responses.fleet import Minute, Overview
    from holdfast._ops.wording import Tone


_BARS = " ▁▂▃▄▅▆▇█"
_STEPS = len(_BARS) - 1
_LABEL = 8
_RATE = 12
_PROBLEMS = 2


class Trouble(NamedTuple):
    """The reason why no new data is shown."""

    message: str
    since: float
    """Start time, by the event loop's clock."""
    is_outage: bool
    """True: the read is retried and the data shown is old. False: a retry would give the same answer."""

    @property
    def text(self) -> str:
        message = plain(self.message, 300)
        passed = asyncio.get_running_loop().time() - self.since
        return f"{message} ({span(max(1.0, passed))})" if self.is_outage else message


def verdict(overview: Overview | None, trouble: Trouble | None, where: str, width: int) -> Text:
    """Return the status in one line, with the problems in lines below."""
    if trouble is not None:
        lines = [_between(paint(f"✘ {trouble.text}", "bad", bold=True), where, width)]
        if overview is not None:
            lines.append(paint(f"   shown is what was known at {overview.at:%H:%M:%S}Z", "dim"))
    elif overview is None:
        lines = [_between(paint("… asking the database", "dim"), where, width)]
    else:
        right = f"{where} {overview.at:%H:%M:%S}Z"
        lines = [_between(_judged(overview), right, width), *_problems(overview)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def _judged(overview: Overview) -> Text:
    if overview.ok:
        return paint(f"✔ {overview.verdict}", "good", bold=True)
    critical = any(problem.severity == "critical" for problem in overview.problems)
    return paint(f"{'✘' if critical else '!'} {overview.verdict}", "bad" if critical else "warn", bold=True)


def _problems(overview: Overview) -> Iterable[Text]:
    worst = overview.problems
    for problem in worst[:_PROBLEMS]:
        yield paint(f"   {plain(problem.text, 300)}", "bad" if problem.severity == "critical" else "warn")
    if len(worst) > _PROBLEMS:
        yield paint(f"   and {len(worst) - _PROBLEMS} more: press !", "dim")


def figures(overview: Overview, width: int) -> Text:
    """Return the current and hourly figures, most important first. Those that do not fit are left out."""
    depth, ended = overview.depth, overview.completed + overview.failed
    fails = any(problem.code == "kind_failing" for problem in overview.problems)
    facts: list[tuple[str, Tone]] = [
        (counted(overview.workers, "worker"), "plain" if overview.workers else "bad"),
        (f"{compact(depth.due)} due", "plain"),
        (f"oldest {span(depth.oldest_due_seconds)}" if depth.due else "none waits", "plain"),
        (f"{compact(depth.processing)} running", "plain"),
        (f"{share(overview.failed, ended)} failed", "bad" if fails else "plain"),
        (f"p95 waits {_time(overview.waiting.p95)}", "plain"),
        (f"runs {_time(overview.running.p95)}", "plain"),
        (f"{compact(overview.retried)} retried", "plain"),
        (f"{compact(depth.blocked)} blocked", "plain"),
        (f"relays {compact(overview.relay_lag_events)} behind", "plain"),
    ]
    line = Text(" ")
    for fact, tone in facts:
        if line.cell_len + len(fact) + 3 > width:
            break
        line += Text.assemble(paint(" · " if line.cell_len > 1 else "", "dim"), paint(fact, tone))
    return line


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else span(seconds)


def course(minutes: Sequence[Minute], width: int) -> Text:
    """Draw completed and failed jobs, one bar per minute, newest on the right."""
    room = max(1, width - _LABEL - _RATE)
    lines: list[tuple[str, list[int], Tone]] = [
        ("done", [minute.completed for minute in minutes], "good"),
        ("failed", [minute.failed for minute in minutes], "bad"),
    ]
    return Text("\n").join(
        Text.assemble(
            paint(f"{' ' + label:<{_LABEL}}", "dim"),
            paint(bars(counts, room), tone),
            paint(f"{_rate(counts) + '/min ':>{_RATE}}", "plain"),
        )
        for label, counts, tone in lines
    )


def _rate(counts: Sequence[int]) -> str:
    """Return the rate of the last whole minute; the current one is incomplete."""
    return compact(counts[-2] if len(counts) > 1 else 0)


def bars(counts: Sequence[int], room: int) -> str:
    """Draw counts as bars over the whole width. If it is too small, the oldest are left out.

    A full bar is the highest count, at least eight, so that a single failure stays small.
    """
    shown = counts[-room:]
    if not shown:
        return " " * room
    full = max(_STEPS, *shown)
    return "".join(_bar(shown[place * len(shown) // room], full) for place in range(room))


def _bar(count: int, full: int) -> str:
    """Draw one count. Anything above zero is visible."""
    return _BARS[max(1, round(_STEPS * count / full))] if count else _BARS[0]


def _between(left: Text, right: str, width: int) -> Text:
    """Put one text left and one right. If both do not fit, only the left one is kept."""
    gap = width - left.cell_len - len(right) - 2
    if gap < 1:
        return Text.assemble(" ", left)
    return Text.assemble(" ", left, " " * gap, paint(right, "dim"))
