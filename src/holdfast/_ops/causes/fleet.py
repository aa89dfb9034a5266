"""The rules about locks, workers, pauses, kinds without a worker, reapers, runners and counts."""

from __future__ import annotations

import shlex
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

from holdfast._ops.causes.case import be, page, pairs, wait
from holdfast._ops.wording import counted, plain, span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._ops.causes.case import Case
    from holdfast._ops.responses.fleet import Problem
    from holdfast._store.worker import WorkerLine

# A worker that ended so many seconds ago is taken for one that is being restarted.
RESTART_SECONDS = 8.0
# A worker that holds nothing, and behind which nothing waits, is named for so long after its last heartbeat, and no
# worker for longer than an hour.
SILENT_SECONDS, FORGOTTEN_SECONDS = 600.0, 3600.0
LOCK_SECONDS = 3.0
# Longer than any reaper interval that the default lease allows.
REAPED_SECONDS = 90.0
COUNTED_SECONDS = 300.0
# A cause that concerns more things than this is one line, which counts the others.
MOST_LINES = 2


def locked(case: Case) -> Iterator[Problem]:
    for locker in case.facts.lockers[:MOST_LINES]:
        if locker.seconds >= LOCK_SECONDS:
            case.all_explained = True
            yield case.problem(
                "locked",
                "A session locks a table of Holdfast",
                f"{locker.text}; {wait(locker.waiting, 'session')} for it.",
                "Let it commit, or end it.",
                about=locker.table,
                since=case.now - timedelta(seconds=locker.seconds),
                count=locker.waiting,
                critical=True,
                page="workers",
                command=locker.cure,
            )


def workers(case: Case) -> Iterator[Problem]:
    """Find silent workers, and that there is none at all."""
    silent = [worker for worker in case.facts.workers if worker.state == "silent" and not _is_replaced(worker, case)]
    waiting = {(line.queue, line.kind): line.due for line in case.waiting()}
    named = 0
    for worker in silent:
        held, behind = case.facts.held.get(worker.id, 0), sum(waiting.get(pair, 0) for pair in pairs(worker))
        age = case.age(worker.heartbeat_at)
        alone = not pairs(worker) <= case.served
        if (
            not worker.kinds
            or age > FORGOTTEN_SECONDS
            or (age > SILENT_SECONDS and not held and not (alone and behind))
        ):
            continue
        case.explain(pairs(worker))
        named += 1
        if named > MOST_LINES:
            continue
        due = f", and {wait(behind, 'due job')} behind it" if behind else ""
        where = f" (process {worker.pid} on {plain(worker.host or 'unknown')})" if worker.pid else ""
        yield case.problem(
            "worker_silent",
            f"The worker {worker.name} is silent",
            f"The worker {plain(worker.name)}{where} has sent no heartbeat for {span(age)}; "
            f"it holds {counted(held, 'job')}{due}.",
            "End that process and start a worker in its place.",
            about=worker.name,
            since=worker.heartbeat_at,
            count=held + behind,
            critical=bool(held) or (alone and bool(behind)) or not case.live,
            page="workers",
            command="holdfast worker",
        )
    if case.live:
        return
    case.all_explained = True
    case.relays |= {line.name for line in case.facts.subscriptions}
    last = max((worker.stopped_at or worker.heartbeat_at for worker in case.facts.workers), default=None)
    jobs = sum(line.due for line in case.facts.census.lines)
    if not named and not (last and case.age(last) < RESTART_SECONDS and not case.had("no_worker")):
        since = f"No worker has been alive for {span(case.age(last))}" if last else "No worker is alive"
        yield case.problem(
            "no_worker",
            "No worker is alive",
            f"{since}, and {be(jobs, 'job', 'due')}.",
            "Start a worker.",
            since=last,
            count=jobs,
            critical=bool(jobs),
            page="workers",
            command="holdfast worker",
        )


def _is_replaced(worker: WorkerLine, case: Case) -> bool:
    """Return whether a worker that started later does all that this one did."""
    return any(one.started_at > worker.heartbeat_at and pairs(worker) <= pairs(one) for one in case.live)


def paused(case: Case) -> Iterator[Problem]:
    for pause in case.facts.signals.pauses:
        by = f" by {plain(pause.by, 100)}" if pause.by else ""
        reason = f" ({plain(pause.reason, 200)})" if pause.reason else ""
        age = f" for {span(case.age(pause.at))}" if pause.at else ""
        count: int | None = None
        if pause.what == "queue":
            lines = [line for line in case.facts.census.lines if line.queue == pause.name]
            case.explain((line.queue, line.kind) for line in lines)
            count = sum(line.due for line in lines)
            behind, shown, command = wait(count, "due job"), "queues", "queues"
        elif pause.what == "relay":
            case.relays.add(pause.name)
            count = max((line.events for line in case.facts.subscriptions if line.name == pause.name), default=0)
            behind, shown, command = wait(count, "event"), "relays", "events"
        else:
            behind, shown, command = "its slots are skipped", "runners", "runners"
        yield case.problem(
            "paused",
            f"The {pause.what} {pause.name} is paused",
            f"The {pause.what} {plain(pause.name, 200)} has been paused{age}{by}{reason}; {behind}.",
            "Resume it when the reason is gone.",
            about=pause.name,
            since=pause.at,
            count=count,
            page=shown,
            command=f"holdfast {command} resume {shlex.quote(pause.name)}",
        )


def unserved(case: Case) -> Iterator[Problem]:
    about_to_return = {
        pair
        for worker in case.facts.workers
        if worker.state == "stopped" and case.age(worker.stopped_at) < RESTART_SECONDS
        for pair in pairs(worker)
    }
    lines = [line for line in case.waiting() if (line.queue, line.kind) not in case.served]
    case.explain((line.queue, line.kind) for line in lines)
    lines = [
        line for line in lines if (line.queue, line.kind) not in about_to_return or case.had("unserved_kind", line.kind)
    ]
    lines.sort(key=lambda line: -case.age(line.oldest_due_at))
    shown = lines if len(lines) <= MOST_LINES else lines[:1]
    for line in shown:
        others = lines[1:] if shown != lines else []
        due = line.due + sum(other.due for other in others)
        kinds = plain(line.kind, 200) + (f" and {counted(len(others), 'other kind')}" if others else "")
        where = "" if others else f" in the queue {plain(line.queue, 200)}"
        yield case.problem(
            "unserved_kind",
            f"No worker serves {line.kind}",
            f"{be(due, f'job of {kinds}', 'due')}{where}, and no live worker serves {'them' if others else 'it'}.",
            "Start a worker with the handler and the queue, or see why one failed to start.",
            about=line.kind,
            since=line.oldest_due_at,
            count=due,
            critical=True,
            page="workers",
            command="holdfast worker",
        )


def reapers(case: Case) -> Iterator[Problem]:
    if case.all_explained:
        return
    last = max((worker.reaped_at for worker in case.live if worker.reaped_at), default=None)
    young = all(case.age(worker.started_at) < REAPED_SECONDS for worker in case.live)
    if case.live and not young and (last is None or case.age(last) > REAPED_SECONDS):
        yield case.problem(
            "no_reaper",
            "No live worker reaps",
            "No live worker takes expired leases away: jobs of a worker that dies would wait for ever.",
            "Let the runner `reaper` run: see HOLDFAST_TICK_RUNNERS.",
            since=last,
            critical=True,
            page="runners",
        )
    stuck = sum(line.stuck for line in case.facts.census.lines)
    if stuck and not any(worker.state == "silent" for worker in case.facts.workers):
        yield case.problem(
            "stuck",
            "Jobs with an expired lease wait for a reaper",
            f"{wait(stuck, 'job')} for a reaper: the lease has expired.",
            "If it lasts, see the workers.",
            count=stuck,
            page=page("jobs", status="processing"),
        )


def runners(case: Case) -> Iterator[Problem]:
    for run in case.facts.runs:
        if run.outcome in ("failed", "lost"):
            yield case.problem(
                "runner_failing",
                f"The runner {run.runner} fails",
                f"The last run of {plain(run.runner, 200)} {run.outcome}: "
                f"{plain(run.error_code or 'no reason known')}.",
                "See the errors of its last runs.",
                about=run.runner,
                since=run.started_at,
                page=f"runners/{quote(run.runner, safe='')}",
                command=f"holdfast runners trigger {shlex.quote(run.runner)}",
            )


def census(case: Case) -> Iterator[Problem]:
    at = case.facts.census.at
    if case.all_explained or (at is not None and case.age(at) <= COUNTED_SECONDS):
        return
    when = "never" if at is None else f"{span(case.age(at))} ago"
    yield case.problem(
        "census_old",
        "Live jobs have not been counted for a while",
        f"Live jobs were last counted {when}: the depths shown are old.",
        "See whether a worker or `holdfast serve` runs.",
        since=at,
        page="workers",
    )
