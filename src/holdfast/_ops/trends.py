"""Looks back: what ended and what waited in the last hour, six hours, day or week, from folded counts."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from holdfast._ops.overview import Totals, percentiles
from holdfast._ops.responses.trends import TrendLine, Trends, TrendTimes, VersionMark
from holdfast._store.tally import read_tallies
from holdfast._store.trend import list_versions, read_backlog, read_counted_steps, read_steps, read_worker_totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from holdfast._ops.pool import Transaction
    from holdfast._ops.requests import TrendQuestion
    from holdfast._ops.responses.fleet import Percentiles
    from holdfast._ops.responses.trends import Range
    from holdfast._ops.service import Service
    from holdfast._store.tally import TallyLine
    from holdfast._store.trend import Backlog, WorkerTotals


class Steps(NamedTuple):
    number: int
    seconds: int


STEPS: dict[Range, Steps] = {"1h": Steps(60, 60), "6h": Steps(72, 300), "24h": Steps(96, 900), "7d": Steps(84, 7200)}
MOST_LINES = 12


async def read_trends(service: Service, asked: TrendQuestion) -> Trends:
    """Return what ended and waited, by step. Each statement is bounded, and has the time of any page."""
    async with service.reading() as transaction:
        steps = STEPS[asked.range]
        at = await transaction.run(read_steps(steps.number, seconds=steps.seconds))
        total, lines = await _read_lines(transaction, asked, steps, at)
        if asked.by == "worker":
            totals = await transaction.run(read_worker_totals(at[0], seconds=steps.seconds))
            lines = _workers(totals, at)
        versions = await transaction.run(list_versions(at[0]))
    return Trends(
        range=asked.range,
        by=asked.by,
        step_seconds=steps.seconds,
        at=at,
        total=total,
        lines=sorted(lines, key=_size, reverse=True)[:MOST_LINES],
        versions=[VersionMark(version=one.version, first_seen_at=one.at) for one in versions],
    )


async def _read_lines(
    transaction: Transaction, asked: TrendQuestion, steps: Steps, at: Sequence[datetime]
) -> tuple[TrendLine, list[TrendLine]]:
    kinds = asked.by == "kind"
    which = {"seconds": steps.seconds, "kinds": kinds, "queue": asked.queue, "kind": asked.kind}
    tallies = await transaction.run(read_tallies(steps.number, **which))  # type: ignore[arg-type]
    backlog = await transaction.run(read_backlog(at[0], **which))  # type: ignore[arg-type]
    counted = set(await transaction.run(read_counted_steps(at[0], seconds=steps.seconds)))
    by_name: defaultdict[str, tuple[list[TallyLine], list[Backlog]]] = defaultdict(lambda: ([], []))
    for tally in tallies:
        by_name[tally.kind or "" if kinds else tally.queue][0].append(tally)
    for line in backlog:
        by_name[line.kind or "" if kinds else line.queue][1].append(line)
    return (
        _line("", tallies, backlog, at, counted),
        [_line(name, ended, waited, at, counted) for name, (ended, waited) in by_name.items()],
    )


def _line(
    name: str, tallies: Iterable[TallyLine], backlog: Iterable[Backlog], at: Sequence[datetime], counted: set[datetime]
) -> TrendLine:
    ended: defaultdict[datetime | None, list[TallyLine]] = defaultdict(list)
    for tally in tallies:
        ended[tally.at].append(tally)
    waited: defaultdict[datetime, list[Backlog]] = defaultdict(list)
    for line in backlog:
        waited[line.at].append(line)
    steps = [Totals(ended.get(step, ())) for step in at]
    known = [waited.get(step, []) if step in counted else None for step in at]
    return TrendLine(
        name=name,
        id=None,
        completed=[step.outcomes["completed"] for step in steps],
        failed=[step.outcomes["failed"] for step in steps],
        retried=[step.outcomes["retry"] for step in steps],
        waiting=_times([percentiles(step.times.waiting) for step in steps]),
        running=_times([percentiles(step.times.running) for step in steps]),
        due=[None if lines is None else sum(line.due or 0 for line in lines) for lines in known],
        processing=[None if lines is None else sum(line.processing or 0 for line in lines) for lines in known],
        oldest_due_seconds=[
            None if lines is None else max((line.oldest or 0.0 for line in lines), default=0.0) for lines in known
        ],
    )


def _times(steps: Sequence[Percentiles]) -> TrendTimes:
    return TrendTimes(p50=[one.p50 for one in steps], p95=[one.p95 for one in steps], p99=[one.p99 for one in steps])


def _workers(totals: Iterable[WorkerTotals], at: Sequence[datetime]) -> list[TrendLine]:
    """Return what each worker did in each step: the difference of two counts. Of the first count nothing is known."""
    by_id: defaultdict[int, list[WorkerTotals]] = defaultdict(list)
    for line in totals:
        by_id[line.id].append(line)
    place = {step: n for n, step in enumerate(at)}
    none: list[float | None] = [None] * len(at)
    nothing: list[int | None] = [None] * len(at)
    unknown = TrendTimes(p50=none, p95=none, p99=none)
    found: list[TrendLine] = []
    for id_, lines in by_id.items():
        columns = {name: [0] * len(at) for name in ("completed", "failed", "retried")}
        for before, after in pairwise(lines):
            for name, column in columns.items():
                column[place[after.at]] += max(0, getattr(after, name) - getattr(before, name))
        found.append(
            TrendLine(
                name=lines[-1].name,
                id=str(id_),
                **columns,
                waiting=unknown,
                running=unknown,
                due=nothing,
                processing=nothing,
                oldest_due_seconds=none,
            )
        )
    return found


def _size(line: TrendLine) -> int:
    return sum(line.completed) + sum(line.failed) + sum(line.retried) + max((due or 0 for due in line.due), default=0)
