"""Counts of ended attempts, by queue, kind and outcome, and how long the attempts waited and ran."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003 - a field
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.statement import Statement, many, statement, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast._store.statement import Row

# The most rows that are read, and the most that are returned of each sort.
MOST_READ = 200_000
MOST_TALLIES = 50_000
# As in `holdfast.time_bucket`: the bound of a bucket is 1.1 times that of the one before, from 0.1 ms on.
_FIRST_SECONDS, _RATIO, _UNKNOWN = 0.0001, 1.1, 255


@dataclass(slots=True)
class Times:
    """How long attempts waited and ran: the number of attempts by bucket."""

    waiting: Counter[int] = field(default_factory=Counter)
    running: Counter[int] = field(default_factory=Counter)

    def add(self, counts: Iterable[int]) -> None:
        """Add counts as the database has them: `512 * count + bucket`, and 256 more for how long attempts ran."""
        for packed in counts:
            count, bucket = divmod(packed, 512)
            which, bucket = divmod(bucket, 256)
            if bucket != _UNKNOWN:
                (self.running if which else self.waiting)[bucket] += count

    def merge(self, other: Times) -> None:
        self.waiting.update(other.waiting)
        self.running.update(other.running)


def quantiles(buckets: Mapping[int, int], *wanted: float) -> list[float | None]:
    """Return the seconds below which these parts of all values lie, each wrong by at most 5 %; None: no values.

    >>> quantiles({50: 98, 100: 2}, 0.5, 0.99)
    [0.0112, 1.31]
    """
    whole = sum(buckets.values())
    if not whole:
        return [None for _ in wanted]
    order = sorted(buckets)
    reached = list(accumulate(buckets[bucket] for bucket in order))
    return [
        float(f"{_seconds(next(b for b, count in zip(order, reached, strict=True) if count >= part * whole)):.3g}")
        for part in wanted
    ]


def _seconds(bucket: int) -> float:
    """Return the value in a bucket that is as far from its lower bound as from its upper one, in parts of both."""
    return _FIRST_SECONDS * _RATIO**bucket * 2 / (1 + _RATIO)


class TallyLine(NamedTuple):
    """The number of attempts with one outcome, or without one how long all of them waited and ran."""

    at: datetime | None
    """The beginning of the step; None: all of them."""
    queue: str
    kind: str | None
    outcome: str | None
    jobs: int
    times: list[int]


class TallySpan(NamedTuple):
    """A minute, five of them, a quarter of an hour, an hour or a day."""

    since: datetime
    until: datetime


def read_tallies(  # noqa: PLR0913 - one keyword per bound
    steps: int,
    *,
    seconds: int = 60,
    kinds: bool = False,
    whole: bool = False,
    queue: str | None = None,
    kind: str | None = None,
) -> Statement[list[TallyLine]]:
    """Return the tallies of so many steps up to now, including the current one, by step and queue.

    `seconds`: of a step. `kinds`: by kind too. `whole`: all steps as one. `queue`, `kind`: only these.
    """
    return statement(
        "read_tallies", _lines, steps=steps, seconds=seconds, kinds=kinds, whole=whole, queue=queue, kind=kind,
        most=MOST_READ, limit=MOST_TALLIES,
    )  # fmt: skip


def sum_tallies() -> Statement[dict[str, int]]:
    """Return the number of completed and failed jobs within the time their history is kept."""
    return statement("sum_tallies", lambda rows: {row[0]: int(row[1]) for row in rows})


def unfolded_spans(*, limit: int, days: int = 11) -> Statement[list[TallySpan]]:
    """Return the spans that have more rows than necessary."""
    return statement("unfolded_spans", many(TallySpan), days=days, limit=limit)


def fold_tallies(span: TallySpan) -> Statement[int]:
    """Merge the rows of one span; return how many rows were saved."""
    return statement("fold_tallies", value, since=span.since.isoformat(), until=span.until.isoformat())


def _lines(rows: Sequence[Row]) -> list[TallyLine]:
    return [
        TallyLine(at, queue, kind, outcome, jobs or 0, json.loads(times) if times else [])
        for at, queue, kind, outcome, jobs, times in rows
    ]
