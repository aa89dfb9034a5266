"""The overview: a summary of queues, workers, relays and runners. Their problems are found in `causes`."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast._ops.causes.judgement import judge
from holdfast._ops.facts import read_facts
from holdfast._ops.responses.fleet import Depth, Minute, Overview, Percentiles, QueueOverview, UnservedKind
from holdfast._store import worker as fleet
from holdfast._store.tally import Times, quantiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from holdfast._ops.facts import Facts
    from holdfast._ops.pool import Transaction
    from holdfast._ops.responses.fleet import Problem
    from holdfast._store.inspect import Census, KindCount
    from holdfast._store.subscription import SubscriptionRow
    from holdfast._store.tally import TallyLine
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
    all_ = Totals(seen.tallies)
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
        waiting=percentiles(all_.times.waiting),
        running=percentiles(all_.times.running),
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
    ended = Totals(tallies)
    return QueueOverview(
        name=name,
        paused=paused,
        depth=depth((line for line in census.lines if line.queue == name), census.now),
        completed=ended.outcomes["completed"],
        failed=ended.outcomes["failed"],
        waiting=percentiles(ended.times.waiting),
        running=percentiles(ended.times.running),
        minutes=ended.minutes(times),
    )


class Totals:
    """Ended attempts by outcome, by time and by step."""

    def __init__(self, tallies: Iterable[TallyLine]) -> None:
        self.outcomes: Counter[str] = Counter()
        self.times = Times()
        self._by_minute: defaultdict[datetime | None, list[TallyLine]] = defaultdict(list)
        for line in tallies:
            if line.outcome is not None:
                self.outcomes[line.outcome] += line.jobs
            self.times.add(line.times)
            self._by_minute[line.at].append(line)

    def minutes(self, times: list[datetime]) -> list[Minute]:
        return [_minute(time, self._by_minute.get(time, ())) for time in times]


def _minute(time: datetime, lines: Iterable[TallyLine]) -> Minute:
    ended = Totals(lines)
    return Minute(
        minute=time,
        completed=ended.outcomes["completed"],
        failed=ended.outcomes["failed"],
        retried=ended.outcomes["retry"],
        cancelled=ended.outcomes["cancelled"],
        waiting=percentiles(ended.times.waiting),
        running=percentiles(ended.times.running),
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


def percentiles(buckets: Mapping[int, int]) -> Percentiles:
    """Return percentiles in seconds, each wrong by at most 5 %."""
    p50, p95, p99 = quantiles(buckets, 0.50, 0.95, 0.99)
    return Percentiles(p50=p50, p95=p95, p99=p99)
