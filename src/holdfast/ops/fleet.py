"""Workers, queues, kinds, runners and subscriptions, as the pages show them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.ops import answer
from holdfast.ops.answer import (
    KindLine,
    Kinds,
    PartitionLine,
    QueueLine,
    Queues,
    RunnerLine,
    Runners,
    SubscriptionLine,
    Subscriptions,
    Workers,
)
from holdfast.ops.depth import depth, unserved
from holdfast.ops.percentile import latency
from holdfast.schedule import InvalidSchedule, parse
from holdfast.store.census import read_census, read_kind_tallies
from holdfast.store.fleet import list_workers
from holdfast.store.run import last_runs
from holdfast.store.schedule import list_schedules
from holdfast.store.subscription import list_subscriptions
from holdfast.store.worker import QueueControl, read_queues

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from holdfast.ops.pool import Talk
    from holdfast.store.fleet import FleetWorker
    from holdfast.store.run import RunLine
    from holdfast.store.schedule import ScheduleLine
    from holdfast.store.subscription import SubscriptionLine as StoredLine

_HOUR = 60
_SHOWN_TIMES = 3


async def read_workers(talk: Talk) -> Workers:
    workers = await talk.ask(list_workers())
    census = await talk.ask(read_census())
    return Workers(
        workers=[answer.WorkerLine.model_validate(worker._asdict()) for worker in workers],
        unserved=unserved(census, workers),
    )


async def read_queue_lines(talk: Talk) -> Queues:
    census = await talk.ask(read_census())
    controls = {control.name: control for control in await talk.ask(read_queues())}
    served = _served(await talk.ask(list_workers(latest=0)))
    names = {line.queue for line in census.lines} | set(controls) | set(served)
    return Queues(
        queues=[
            QueueLine(
                **controls.get(name, QueueControl(name, False, None, None, None))._asdict(),  # noqa: FBT003 - its columns
                depth=depth((line for line in census.lines if line.queue == name), census.now),
                workers=served[name],
            )
            for name in sorted(names)
        ],
        counted_at=census.at,
    )


async def read_kinds(talk: Talk) -> Kinds:
    census = await talk.ask(read_census())
    workers = [worker for worker in await talk.ask(list_workers(latest=0)) if worker.state == "live"]
    ended: Counter[tuple[str, str, str]] = Counter()
    buckets: dict[tuple[str, str], Counter[int]] = {}
    for tally in await talk.ask(read_kind_tallies(_HOUR)):
        ended[tally.queue, tally.kind, tally.outcome] += tally.jobs
        if tally.bucket is not None:
            buckets.setdefault((tally.queue, tally.kind), Counter())[tally.bucket] += tally.jobs
    found = {(line.queue, line.kind) for line in census.lines} | {key[:2] for key in ended}
    known = {kind for _, kind in found}
    # Of a kind that has no job a worker says only its name; it may be enqueued to any queue.
    idle = {("", kind) for worker in workers for kind in worker.kinds if kind not in known}
    return Kinds(
        kinds=[
            KindLine(
                kind=kind,
                queue=queue,
                depth=depth((line for line in census.lines if (line.queue, line.kind) == (queue, kind)), census.now),
                workers=sum(kind in worker.kinds and (not queue or queue in worker.queues) for worker in workers),
                completed=ended[queue, kind, "completed"],
                failed=ended[queue, kind, "failed"],
                latency=latency(buckets.get((queue, kind), {})),
            )
            for queue, kind in sorted(found | idle, key=lambda key: (key[1], key[0]))
        ],
        counted_at=census.at,
    )


async def read_runners(talk: Talk) -> Runners:
    now = (await talk.ask(read_census())).now
    schedules = {line.name: line for line in await talk.ask(list_schedules())}
    runs = {line.runner: line for line in await talk.ask(last_runs())}
    names = sorted({*schedules, *runs})
    return Runners(runners=[_runner(name, schedules.get(name), runs.get(name), now) for name in names])


async def read_subscriptions(talk: Talk) -> Subscriptions:
    by_name: dict[str, list[StoredLine]] = {}
    for line in await talk.ask(list_subscriptions()):
        by_name.setdefault(line.name, []).append(line)
    return Subscriptions(
        subscriptions=[
            SubscriptionLine(
                name=name,
                target=lines[0].target,
                paused=lines[0].paused,
                elsewhere=lines[0].elsewhere,
                # Each partition counts all events that came after its position, of every key.
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


def run_line(run: RunLine) -> answer.RunLine:
    return answer.RunLine.model_validate(run._asdict())


def _served(workers: Iterable[FleetWorker]) -> Counter[str]:
    """Return how many live workers serve each queue."""
    return Counter(queue for worker in workers if worker.state == "live" for queue in worker.queues)


def _runner(name: str, schedule: ScheduleLine | None, run: RunLine | None, now: datetime) -> RunnerLine:
    last = None if run is None else run_line(run)
    if schedule is None:
        return RunnerLine(
            name=name, what="loop", schedule=None, paused=False, triggered=False, next_at=[], last=last,
            running_since=None, running_on=None,
        )  # fmt: skip
    return RunnerLine(
        name=name,
        what=schedule.what,
        schedule=schedule.schedule,
        paused=schedule.paused,
        triggered=schedule.triggered,
        next_at=_next(schedule, now),
        last=last,
        running_since=schedule.started_at,
        running_on=schedule.locked_by,
    )


def _next(schedule: ScheduleLine, now: datetime) -> list[datetime]:
    if schedule.paused:
        return []
    times = [] if schedule.next_at is None else [schedule.next_at]
    try:
        every = parse(schedule.schedule)
        while len(times) < _SHOWN_TIMES:
            times.append(every.next(times[-1] if times else now))
    except InvalidSchedule:  # made by hand, or the extra that reads it is not installed
        pass
    return times
