"""The overview: a summary of queues, workers, relays and runners. Their problems are found in `causes`."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING

from holdfast._ops.causes.judgement import judge
from holdfast._ops.facts import read_facts
from holdfast._ops.responses.fleet import Depth, Latency, Minute, Overview, QueueOverview, UnservedKind
from holdfast._store import worker as fleet
from holdfast._store.inspect import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from holdfast._ops.facts import Facts
    from holdfast._ops.pool import Transaction
    from holdfast._ops.responses.fleet import Problem
    from holdfast._store.inspect import Census, KindCount, TallyLine
    from holdfast._store.subscription import SubscriptionRow
    from holdfast._store.worker import WorkerLine


async def read_overview(transaction: Transaction, minutes: int, before: Sequence[Problem] = ()) -> Overview:
    """Return the overview. `before`: the problems of the last one. Default: none."""
    return overview(await read_facts(transaction, minutes), minutes, before)


def overview(seen: Facts, minutes: int, before: Sequence[Problem] = ()) -> Overview:
    now = seen.census.now
    since = now.replace(second=0, microsecond=0) - timedelta(minutes=minutes - 1)
    times = [since + timedelta(minutes=minute) for minute in range(minutes)]
    paused = {queue.name for queue in seen.queues if queue.paused}
    names = {line.queue for line in seen.census.lines} | {line.queue for line in seen.tallies} | paused
    lacking = unserved(seen.census, seen.workers)
    all_ = _Totals(seen.tallies)
    by_queue: defaultdict[str, list[TallyLine]] = defaultdict(list)
    for line in seen.tallies:
        by_queue[line.queue].append(line)
    verdict = judge(seen, before)
    return Overview(
        at=now,
        counted_at=seen.census.at,
        ok=verdict.ok,
        verdict=verdict.text,
        problems=verdict.problems,
        depth=depth(seen.census.lines, now),
        completed=all_.outcomes["completed"],
        failed=all_.outcomes["failed"],
        retried=all_.outcomes["retry"],
        latency=latency(all_.buckets),
        minutes=all_.minutes(times),
        queues=[_queue(name, seen.census, by_queue[name], times, paused=name in paused) for name in sorted(names)],
        workers=sum(worker.state == "live" for worker in seen.workers),
        unserved=lacking,
        relay_lag_events=_lag(seen.subscriptions),
        relay_lag_seconds=max((line.seconds for line in seen.subscriptions), default=0.0),
    )


def _lag(partitions: Iterable[SubscriptionRow]) -> int:
    """Return the sum over subscriptions of each one's largest partition lag."""
    furthest: Counter[str] = Counter()
    for line in partitions:
        furthest[line.name] = max(furthest[line.name], line.events)
    return furthest.total()


def _queue(
    name: str, census: Census, tallies: list[TallyLine], times: list[datetime], *, paused: bool
) -> QueueOverview:
    ended = _Totals(tallies)
    return QueueOverview(
        name=name,
        paused=paused,
        depth=depth((line for line in census.lines if line.queue == name), census.now),
        completed=ended.outcomes["completed"],
        failed=ended.outcomes["failed"],
        latency=latency(ended.buckets),
        minutes=ended.minutes(times),
    )


class _Totals:
    """Ended jobs by outcome, by bucket and by minute."""

    def __init__(self, tallies: Iterable[TallyLine]) -> None:
        self.outcomes: Counter[str] = Counter()
        self.buckets: Counter[int] = Counter()
        self._by_minute: defaultdict[datetime, list[TallyLine]] = defaultdict(list)
        for line in tallies:
            self.outcomes[line.outcome] += line.jobs
            if line.bucket is not None:
                self.buckets[line.bucket] += line.jobs
            self._by_minute[line.minute].append(line)

    def minutes(self, times: list[datetime]) -> list[Minute]:
        return [_minute(time, self._by_minute.get(time, ())) for time in times]


def _minute(time: datetime, lines: Iterable[TallyLine]) -> Minute:
    ended = _Totals(lines)
    return Minute(
        minute=time,
        completed=ended.outcomes["completed"],
        failed=ended.outcomes["failed"],
        retried=ended.outcomes["retry"],
        cancelled=ended.outcomes["cancelled"],
        latency=latency(ended.buckets),
    )


def depth(lines: Iterable[KindCount], now: datetime) -> Depth:
    lines = list(lines)
    return Depth(
        pending=sum(line.pending for line in lines),
        due=sum(line.due for line in lines),
        processing=sum(line.processing for line in lines),
        blocked=sum(line.blocked for line in lines),
        stuck=sum(line.stuck for line in lines),
        oldest_due_seconds=max((_age(line.oldest_due_at, now) for line in lines), default=0.0),
    )


def unserved(census: Census, workers: Iterable[WorkerLine]) -> list[UnservedKind]:
    """Return the kinds with due jobs that no live worker handles, longest waiting first."""
    found = [
        UnservedKind(
            kind=line.kind, queue=line.queue, due=line.due, oldest_due_seconds=_age(line.oldest_due_at, census.now)
        )
        for line in fleet.unserved(census, workers)
    ]
    return sorted(found, key=lambda kind: -kind.oldest_due_seconds)


def _age(at: datetime | None, now: datetime) -> float:
    return 0.0 if at is None else max(0.0, (now - at).total_seconds())


NOTHING = Latency(p50=None, p95=None, p99=None)


def latency(buckets: Mapping[int, int]) -> Latency:
    """Return percentiles from job counts per bucket: the upper bound of the bucket that contains each percentile.

    Positions within a bucket are unknown and not interpolated. Jobs above the last bound count as at that bound.

    >>> latency({5: 98, 11: 2})
    Latency(p50=0.05, p95=0.05, p99=5.0)
    """
    whole = sum(buckets.values())
    if not whole:
        return NOTHING
    return Latency(p50=_at(buckets, 0.50 * whole), p95=_at(buckets, 0.95 * whole), p99=_at(buckets, 0.99 * whole))


def _at(buckets: Mapping[int, int], wanted: float) -> float:
    order = sorted(buckets)
    for bucket, reached in zip(order, accumulate(buckets[bucket] for bucket in order), strict=True):
        if reached >= wanted:
            return BOUNDS[min(bucket, len(BOUNDS) - 1)]
    raise AssertionError("the whole is reached with the last bucket")
