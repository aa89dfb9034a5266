"""Workers, queues, kinds, runners and subscriptions, as the dashboard shows them."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from holdfast._model.codec import parse_json
from holdfast._model.schedule import InvalidSchedule, parse
from holdfast._ops.overview import Totals, depth, percentiles, unserved
from holdfast._ops.responses.fleet import (
    KindLine,
    Kinds,
    LimitLine,
    Limits,
    PartitionLine,
    QueueLine,
    Queues,
    RunnerLine,
    Runners,
    StatsRuntime,
    SubscriptionLine,
    Subscriptions,
    Workers,
)
from holdfast._store.inspect import read_census
from holdfast._store.limit import list_limits
from holdfast._store.schedule import last_runs, list_running, list_schedules, read_scheduled_jobs
from holdfast._store.subscription import list_subscriptions
from holdfast._store.tally import read_tallies
from holdfast._store.worker import QueueControlRow, list_workers, read_queues

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from holdfast._ops.pool import Transaction
    from holdfast._ops.redaction import Redaction
    from holdfast._store.schedule import ScheduledJob, ScheduleLine
    from holdfast._store.subscription import SubscriptionRow as StoredLine
    from holdfast._store.tally import TallyLine
    from holdfast._store.worker import WorkerLine


_HOUR = 60
_SHOWN_TIMES = 3
_LARGEST_PAYLOAD = 1024


async def read_workers(transaction: Transaction) -> Workers:
    workers = await transaction.run(list_workers())
    census = await transaction.run(read_census())
    return Workers(
        items=workers,
        unserved=unserved(census, workers),
    )


async def read_queue_lines(transaction: Transaction) -> Queues:
    census = await transaction.run(read_census())
    controls = {control.name: control for control in await transaction.run(read_queues())}
    served = _served(await transaction.run(list_workers(latest=0)))
    names = {line.queue for line in census.lines} | set(controls) | set(served)
    return Queues(
        items=[
            QueueLine(
                **controls.get(name, QueueControlRow(name, False, None, None, None))._asdict(),  # noqa: FBT003 - its columns
                depth=depth((line for line in census.lines if line.queue == name), census.now),
                workers=served[name],
            )
            for name in sorted(names)
        ],
        counted_at=census.at,
    )


async def read_limit_lines(transaction: Transaction) -> Limits:
    return Limits(
        items=[
            LimitLine(
                **{name: getattr(limit, name) for name in LimitLine.model_fields if name not in {"declared", "etag"}},
                declared=limit.declared is not None,
            )
            for limit in await transaction.run(list_limits())
        ]
    )


async def read_kinds(transaction: Transaction) -> Kinds:
    census = await transaction.run(read_census())
    workers = [worker for worker in await transaction.run(list_workers(latest=0)) if worker.state == "live"]
    tallies: defaultdict[tuple[str, str], list[TallyLine]] = defaultdict(list)
    for tally in await transaction.run(read_tallies(_HOUR, kinds=True, whole=True)):
        tallies[tally.queue, tally.kind or ""].append(tally)
    ended = {key: Totals(lines) for key, lines in tallies.items()}
    found = {(line.queue, line.kind) for line in census.lines} | set(ended)
    known = {kind for _, kind in found}
    # Workers report kinds without queues, so a kind without jobs has no queue here.
    idle = {("", kind) for worker in workers for kind in worker.kinds if kind not in known}
    none = Totals(())
    return Kinds(
        items=[
            KindLine(
                kind=kind,
                queue=queue,
                depth=depth((line for line in census.lines if (line.queue, line.kind) == (queue, kind)), census.now),
                workers=sum(kind in worker.kinds and (not queue or queue in worker.queues) for worker in workers),
                completed=totals.outcomes["completed"],
                failed=totals.outcomes["failed"],
                waiting=percentiles(totals.times.waiting),
                running=percentiles(totals.times.running),
            )
            for queue, kind in sorted(found | idle, key=lambda key: (key[1], key[0]))
            for totals in [ended.get((queue, kind), none)]
        ],
        counted_at=census.at,
    )


async def read_runners(transaction: Transaction, redaction: Redaction) -> Runners:
    now = (await transaction.run(read_census())).now
    schedules = {line.name: line for line in await transaction.run(list_schedules())}
    jobs = {job.name: job for job in await transaction.run(read_scheduled_jobs(largest=_LARGEST_PAYLOAD))}
    runs = {line.runner: line for line in await transaction.run(last_runs())}
    # If several run, show the longest running one.
    ticks = {line.runner: line for line in reversed(await transaction.run(list_running()))}
    return Runners(
        items=[
            RunnerLine(
                name=name,
                **_scheduled(schedules.get(name), now),
                **_enqueued(jobs.get(name), redaction),
                last=runs.get(name),
                running_since=ticks[name].since if name in ticks else None,
                running_on=ticks[name].worker if name in ticks else None,
            )
            for name in sorted({*schedules, *runs, *ticks})
        ]
    )


async def read_subscriptions(transaction: Transaction) -> Subscriptions:
    by_name: dict[str, list[StoredLine]] = {}
    for line in await transaction.run(list_subscriptions()):
        by_name.setdefault(line.name, []).append(line)
    return Subscriptions(
        items=[
            SubscriptionLine(
                name=name,
                target=lines[0].target,
                paused=lines[0].paused,
                elsewhere=lines[0].elsewhere,
                # Each partition counts all events after its position, of every key.
                lag_events=max(line.events for line in lines),
                lag_seconds=max(line.seconds for line in lines),
                parked=sum(line.parked for line in lines),
                partitions=[
                    PartitionLine(
                        partition=line.partition,
                        worker=line.worker,
                        lag_events=line.events,
                        lag_seconds=line.seconds,
                        at=line.at,
                    )
                    for line in lines
                ],
            )
            for name, lines in by_name.items()
        ]
    )


def _served(workers: Iterable[WorkerLine]) -> Counter[str]:
    """Return the number of live workers per queue."""
    return Counter(queue for worker in workers if worker.state == "live" for queue in worker.queues)


def _scheduled(line: ScheduleLine | None, now: datetime) -> dict[str, Any]:
    return {
        "what": "loop" if line is None else line.what,
        "schedule": line and line.schedule,
        "added": line is not None and line.added,
        "paused": line is not None and line.paused,
        "triggered": line is not None and line.triggered,
        "next_at": [] if line is None else _next(line, now),
        "last_at": line and line.last_at,
    }


def _enqueued(job: ScheduledJob | None, redaction: Redaction) -> dict[str, Any]:
    if job is None:
        return {"kind": None, "payload": None}
    payload = None if job.payload is None else redaction.apply(job.kind, parse_json(job.payload)).value
    return {"kind": job.kind, "payload": payload}


def _next(schedule: ScheduleLine, now: datetime) -> list[datetime]:
    if schedule.paused:
        return []
    times = [] if schedule.next_at is None else [schedule.next_at]
    try:
        every = parse(schedule.schedule)
        while len(times) < _SHOWN_TIMES:
            times.append(every.next(times[-1] if times else now))
    except InvalidSchedule:  # edited by hand
        pass
    return times


COUNTED = ("processed", "completed", "retried", "failed", "recovered", "lost")


def runtime(counters: Iterable[Mapping[str, int]], *, is_running: bool, last_error: str | None) -> StatsRuntime:
    """Return the sum of these workers' counters."""
    total: Counter[str] = Counter()
    for counted in counters:
        total.update(counted)
    return StatsRuntime(
        is_running=is_running,
        ticks_total=total["ticks"],
        processed_total=total["claimed"],
        retried_total=total["job_retried"],
        dead_letter_total=total["job_failed"] + total["reaped_failed"],
        recovered_stuck_total=total["job_reaped"],
        last_error=last_error,
    )
