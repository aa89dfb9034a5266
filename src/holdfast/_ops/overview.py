"""The overview: a summary of queues, workers, relays and runners, and the problems that an operator should see."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from holdfast._ops.responses.fleet import Depth, Latency, Minute, Overview, Problem, QueueOverview, UnservedKind
from holdfast._store import worker as fleet
from holdfast._store.inspect import BOUNDS, read_census, read_tallies
from holdfast._store.schedule import last_runs
from holdfast._store.subscription import list_subscriptions
from holdfast._store.worker import list_workers, read_queues

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from holdfast._ops.pool import Transaction
    from holdfast._ops.responses.fleet import ProblemCode
    from holdfast._store.inspect import Census, KindCount, TallyLine
    from holdfast._store.schedule import RunLine
    from holdfast._store.subscription import SubscriptionRow
    from holdfast._store.worker import QueueControlRow, WorkerLine


async def read_overview(transaction: Transaction, minutes: int) -> Overview:
    return overview(
        Seen(
            census=await transaction.run(read_census()),
            tallies=await transaction.run(read_tallies(minutes)),
            queues=await transaction.run(read_queues()),
            workers=await transaction.run(list_workers(latest=0)),
            subscriptions=await transaction.run(list_subscriptions()),
            runs=await transaction.run(last_runs(days=1)),
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
    all_ = _Totals(seen.tallies)
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


# A job due for longer than this is late.
OLD_SECONDS = 300.0
# A queue is failing with this many dead letters in the last minutes, if they are this share of the ended jobs.
FAILING_MINUTES, FAILING_JOBS, FAILING_PART = 5, 10, 0.1
LAG_SECONDS = 60.0
# Longer than any reaper interval that the default lease allows.
REAPED_SECONDS = 90.0
COUNTED_SECONDS = 300.0


def problems(seen: Seen, unserved: Sequence[UnservedKind]) -> list[Problem]:
    found = [*_workers(seen), *_unserved(unserved), *_queues(seen), *_relays(seen), *_runners(seen), *_census(seen)]
    return sorted(found, key=lambda problem: problem.severity != "critical")


def _workers(seen: Seen) -> Iterator[Problem]:
    live = [worker for worker in seen.workers if worker.state == "live"]
    due = sum(line.due for line in seen.census.lines)
    if not live and due:
        yield _critical("no_worker", f"No worker is alive, and {due:,} jobs are due. Start one: holdfast worker.")
        return
    last = max((worker.reaped_at for worker in live if worker.reaped_at), default=None)
    young = all(seen.census.now - worker.started_at < timedelta(seconds=REAPED_SECONDS) for worker in live)
    if live and not young and (last is None or seen.census.now - last > timedelta(seconds=REAPED_SECONDS)):
        text = "No live worker takes expired leases away: jobs of a worker that dies would wait for ever. "
        yield _critical("no_reaper", text + "Let the runner `reaper` run: HOLDFAST_TICK_RUNNERS.")
    stuck = sum(line.stuck for line in seen.census.lines)
    if stuck:
        yield _warning("stuck", f"{stuck:,} jobs have an expired lease and wait for a reaper.")


def _unserved(unserved: Sequence[UnservedKind]) -> Iterator[Problem]:
    for kind in unserved:
        text = f"{kind.kind}: {kind.due:,} jobs are due in the queue {kind.queue}, and no live worker takes them."
        yield _critical("unserved_kind", text, kind.kind)


def _queues(seen: Seen) -> Iterator[Problem]:
    paused = {queue.name for queue in seen.queues if queue.paused}
    oldest: dict[str, float] = {}
    for line in seen.census.lines:
        oldest[line.queue] = max(oldest.get(line.queue, 0.0), _age(line.oldest_due_at, seen.census.now))
    for queue, age in sorted(oldest.items()):
        if age > OLD_SECONDS:
            why = "It is paused." if queue in paused else "Add workers, or raise its concurrency."
            text = f"{queue}: the oldest due job has waited for {age / 60:.0f} minutes. {why}"
            yield _warning("backlog", text, queue)
    since = seen.census.now - timedelta(minutes=FAILING_MINUTES)
    failed: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for tally in seen.tallies:
        if tally.minute >= since and tally.outcome in ("completed", "failed"):
            ended[tally.queue] += tally.jobs
            failed[tally.queue] += tally.jobs if tally.outcome == "failed" else 0
    for queue, jobs in sorted(failed.items()):
        if jobs >= FAILING_JOBS and jobs >= FAILING_PART * ended[queue]:
            text = f"{queue}: {jobs:,} of {ended[queue]:,} jobs failed for good within {FAILING_MINUTES} minutes. "
            yield _critical("failing", text + "See the dead letters.", queue)


def _relays(seen: Seen) -> Iterator[Problem]:
    elsewhere = sorted({line.name for line in seen.subscriptions if line.elsewhere})
    for name in elsewhere:
        text = f"{name}: its positions are of another server, since this database was restored. "
        yield _critical("relay_elsewhere", text + f"Begin anew: holdfast events rebase {name}.", name)
    behind: dict[str, float] = {}
    for line in seen.subscriptions:
        if not line.paused and not line.elsewhere and line.seconds > LAG_SECONDS:
            behind[line.name] = max(behind.get(line.name, 0.0), line.seconds)
    for name, seconds in sorted(behind.items()):
        yield _warning("relay_behind", f"{name}: events wait for {seconds:.0f} seconds to be handed over.", name)
    parked: Counter[str] = Counter()
    for line in seen.subscriptions:
        parked[line.name] += line.parked
    for name, events in sorted((+parked).items()):
        text = f"{name}: {events:,} events are parked: its sink refused them, or they wait behind one of their key."
        yield _warning("relay_parked", text, name)


def _runners(seen: Seen) -> Iterator[Problem]:
    for run in seen.runs:
        if run.outcome in ("failed", "lost"):
            text = f"{run.runner}: its last run {run.outcome}: {run.error_code or 'no reason known'}."
            yield _warning("runner_failing", text, run.runner)


def _census(seen: Seen) -> Iterator[Problem]:
    at = seen.census.at
    if at is None or seen.census.now - at > timedelta(seconds=COUNTED_SECONDS):
        when = "never" if at is None else f"{(seen.census.now - at).total_seconds() / 60:.0f} minutes ago"
        yield _warning("census_old", f"Live jobs were last counted {when}: the depths shown are old.")


def _critical(code: ProblemCode, text: str, about: str | None = None) -> Problem:
    return Problem(code=code, severity="critical", text=text, about=about)


def _warning(code: ProblemCode, text: str, about: str | None = None) -> Problem:
    return Problem(code=code, severity="warning", text=text, about=about)


class Seen(NamedTuple):
    """All inputs of an overview, from one snapshot."""

    census: Census
    tallies: list[TallyLine]
    queues: list[QueueControlRow]
    workers: list[WorkerLine]
    subscriptions: list[SubscriptionRow]
    runs: list[RunLine]
