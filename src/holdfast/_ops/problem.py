"""The problems that an operator should see, most severe first."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast._ops.responses import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast._ops.responses import UnservedKind
from typing import TYPE_CHECKING, NamedTuple

from holdfast._ops.responses import UnservedKind

if TYPE_CHECKING:
    from holdfast._store.inspect import Census, TallyLine
    from holdfast._store.schedule import RunRow
    from holdfast._store.subscription import SubscriptionRow
    from holdfast._store.worker import FleetWorker, QueueControlRow

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
        yield Problem(
            code="no_worker",
            severity="critical",
            text=f"No worker is alive, and {due:,} jobs are due. Start one: holdfast worker.",
        )
        return
    last = max((worker.reaped_at for worker in live if worker.reaped_at), default=None)
    young = all(seen.census.now - worker.started_at < timedelta(seconds=REAPED_SECONDS) for worker in live)
    if live and not young and (last is None or seen.census.now - last > timedelta(seconds=REAPED_SECONDS)):
        yield Problem(
            code="no_reaper",
            severity="critical",
            text="No live worker takes expired leases away: jobs of a worker that dies would wait for ever. "
            "Let the runner `reaper` run: WORKER_TICK_RUNNERS.",
        )
    stuck = sum(line.stuck for line in seen.census.lines)
    if stuck:
        yield Problem(
            code="stuck", severity="warning", text=f"{stuck:,} jobs have an expired lease and wait for a reaper."
        )


def _unserved(unserved: Sequence[UnservedKind]) -> Iterator[Problem]:
    for kind in unserved:
        yield Problem(
            code="unserved_kind",
            severity="critical",
            text=f"{kind.kind}: {kind.due:,} jobs are due in the queue {kind.queue}, and no live worker takes them.",
            about=kind.kind,
        )


def _queues(seen: Seen) -> Iterator[Problem]:
    paused = {queue.name for queue in seen.queues if queue.paused}
    oldest: dict[str, float] = {}
    for line in seen.census.lines:
        if line.oldest_due_at is not None:
            age = (seen.census.now - line.oldest_due_at).total_seconds()
            oldest[line.queue] = max(oldest.get(line.queue, 0.0), age)
    for queue, age in sorted(oldest.items()):
        if age > OLD_SECONDS:
            why = "It is paused." if queue in paused else "Add workers, or raise its concurrency."
            yield Problem(
                code="backlog",
                severity="warning",
                text=f"{queue}: the oldest due job has waited for {age / 60:.0f} minutes. {why}",
                about=queue,
            )
    since = seen.census.now - timedelta(minutes=FAILING_MINUTES)
    failed: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for tally in seen.tallies:
        if tally.minute >= since and tally.outcome in ("completed", "failed"):
            ended[tally.queue] += tally.jobs
            failed[tally.queue] += tally.jobs if tally.outcome == "failed" else 0
    for queue, jobs in sorted(failed.items()):
        if jobs >= FAILING_JOBS and jobs >= FAILING_PART * ended[queue]:
            yield Problem(
                code="failing",
                severity="critical",
                text=f"{queue}: {jobs:,} of {ended[queue]:,} jobs failed for good within {FAILING_MINUTES} minutes. "
                "See the dead letters.",
                about=queue,
            )


def _relays(seen: Seen) -> Iterator[Problem]:
    elsewhere = sorted({line.name for line in seen.subscriptions if line.elsewhere})
    for name in elsewhere:
        yield Problem(
            code="relay_elsewhere",
            severity="critical",
            text=f"{name}: its positions are of another server, since this database was restored. "
            f"Begin anew: holdfast events rebase {name}.",
            about=name,
        )
    behind: dict[str, float] = {}
    for line in seen.subscriptions:
        if not line.paused and not line.elsewhere and line.seconds > LAG_SECONDS:
            behind[line.name] = max(behind.get(line.name, 0.0), line.seconds)
    for name, seconds in sorted(behind.items()):
        yield Problem(
            code="relay_behind",
            severity="warning",
            text=f"{name}: events wait for {seconds:.0f} seconds to be handed over.",
            about=name,
        )
    parked: Counter[str] = Counter()
    for line in seen.subscriptions:
        parked[line.name] += line.parked
    for name, events in sorted((+parked).items()):
        yield Problem(
            code="relay_parked",
            severity="warning",
            text=f"{name}: {events:,} events are parked: its sink refused them, or they wait behind one of their key.",
            about=name,
        )


def _runners(seen: Seen) -> Iterator[Problem]:
    for run in seen.runs:
        if run.outcome in ("failed", "lost"):
            yield Problem(
                code="runner_failing",
                severity="warning",
                text=f"{run.runner}: its last run {run.outcome}: {run.error_code or 'no reason known'}.",
                about=run.runner,
            )


def _census(seen: Seen) -> Iterator[Problem]:
    at = seen.census.at
    if at is None or seen.census.now - at > timedelta(seconds=COUNTED_SECONDS):
        said = "never" if at is None else f"{(seen.census.now - at).total_seconds() / 60:.0f} minutes ago"
        yield Problem(
            code="census_old", severity="warning", text=f"Live jobs were last counted {said}: the depths shown are old."
        )


class Seen(NamedTuple):
    """All inputs of an overview, from one snapshot."""

    census: Census
    tallies: list[TallyLine]
    queues: list[QueueControlRow]
    workers: list[FleetWorker]
    subscriptions: list[SubscriptionRow]
    runs: list[RunRow]
