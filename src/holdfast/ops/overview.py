"""Whether all is well: one picture of queues, workers, relays and runners."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from holdfast.ops.answer import Minute, Overview, QueueOverview
from holdfast.ops.depth import depth, unserved
from holdfast.ops.percentile import latency
from holdfast.ops.problem import problems
from holdfast.store.census import read_census, read_tallies
from holdfast.store.fleet import list_workers
from holdfast.store.run import last_runs
from holdfast.store.subscription import list_subscriptions
from holdfast.store.worker import read_queues

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from holdfast.ops.pool import Talk
    from holdfast.store.census import Census, TallyLine
    from holdfast.store.fleet import FleetWorker
    from holdfast.store.run import RunLine
    from holdfast.store.subscription import SubscriptionLine
    from holdfast.store.worker import QueueControl


class Seen(NamedTuple):
    """Everything that an overview is made of, in one snapshot."""

    census: Census
    tallies: list[TallyLine]
    queues: list[QueueControl]
    workers: list[FleetWorker]
    subscriptions: list[SubscriptionLine]
    runs: list[RunLine]


async def read_overview(talk: Talk, minutes: int) -> Overview:
    return overview(
        Seen(
            census=await talk.ask(read_census()),
            tallies=await talk.ask(read_tallies(minutes)),
            queues=await talk.ask(read_queues()),
            workers=await talk.ask(list_workers(latest=0)),
            subscriptions=await talk.ask(list_subscriptions()),
            runs=await talk.ask(last_runs(days=1)),
        ),
        minutes,
    )


def overview(seen: Seen, minutes: int) -> Overview:
    now = seen.census.now
    since = now.replace(second=0, microsecond=0) - timedelta(minutes=minutes - 1)
    times = [since + timedelta(minutes=minute) for minute in range(minutes)]
    paused = {queue.name for queue in seen.queues if queue.paused}
    names = {line.queue for line in seen.census.lines} | {line.queue for line in seen.tallies} | paused
    lacking = unserved(seen.census, seen.workers)
    all_ = _Ended(seen.tallies)
    by_queue: defaultdict[str, list[TallyLine]] = defaultdict(list)
    for line in seen.tallies:
        by_queue[line.queue].append(line)
    found = problems(seen, lacking)
    return Overview(
        at=now,
        counted_at=seen.census.at,
        ok=not found,
        problems=found,
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


def _lag(partitions: Iterable[SubscriptionLine]) -> int:
    """Return the sum over subscriptions: of each, the partition that is furthest behind."""
    furthest: Counter[str] = Counter()
    for line in partitions:
        furthest[line.name] = max(furthest[line.name], line.events)
    return furthest.total()


def _queue(
    name: str, census: Census, tallies: list[TallyLine], times: list[datetime], *, paused: bool
) -> QueueOverview:
    ended = _Ended(tallies)
    return QueueOverview(
        name=name,
        paused=paused,
        depth=depth((line for line in census.lines if line.queue == name), census.now),
        completed=ended.outcomes["completed"],
        failed=ended.outcomes["failed"],
        latency=latency(ended.buckets),
        minutes=ended.minutes(times),
    )


class _Ended:
    """What ended, by outcome, by bucket, and by minute."""

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
    outcomes: Counter[str] = Counter()
    buckets: Counter[int] = Counter()
    for line in lines:
        outcomes[line.outcome] += line.jobs
        if line.bucket is not None:
            buckets[line.bucket] += line.jobs
    return Minute(
        minute=time,
        completed=outcomes["completed"],
        failed=outcomes["failed"],
        retried=outcomes["retry"],
        cancelled=outcomes["cancelled"],
        latency=latency(buckets),
    )
