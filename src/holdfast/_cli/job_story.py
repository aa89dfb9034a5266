"""The whole story of a job, for `holdfast jobs show`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._cli import table
from holdfast._ops.wording import counted
from holdfast._store.inspect import list_attempts, list_replays, read_job, read_waiting, read_worker
from holdfast._store.limit import read_limit_wait
from holdfast._store.step import read_journal, step_lines
from holdfast._store.worker import is_served, list_workers, served_runtime

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast._ops.service import Service
    from holdfast._store.inspect import AttemptLine, ReplayLine, WaitingRow, WorkerRow
    from holdfast._store.limit import LimitWait
    from holdfast._store.step import StepLine
    from holdfast._store.worker import Runtime


class Story(NamedTuple):
    """A job, and everything that is known of it, from one snapshot."""

    job: dict[str, Any]
    served: bool | None
    """Whether a live worker takes it; None if it does not wait."""
    waiting: WaitingRow | None
    limit: LimitWait | None
    """The limit that it waits for."""
    steps: Sequence[StepLine]
    runtime: Runtime | None
    worker: WorkerRow | None
    attempts: Sequence[AttemptLine]
    original: dict[str, Any] | None
    """The job that it replays."""
    replays: Sequence[ReplayLine]


async def read_story(service: Service, job_id: int) -> Story | None:
    async with service.reading() as transaction:
        read = transaction.run
        job = await read(read_job(job_id))
        if job is None:
            return None
        attempts = await read(list_attempts(job_id))
        holder = job.get("locked_by") or job.get("worker_id")
        worker = await read(read_worker(holder)) if holder else None
        original = await read(read_job(job["replay_of"])) if job["replay_of"] else None
        replays = await read(list_replays(job_id))
        waiting = await read(read_waiting(job_id))
        limit = await read(read_limit_wait(job_id)) if job.get("limit_key") else None
        journal = job.pop("steps")
        steps = await read(read_journal(job_id)) if journal is True else step_lines(journal)
        served = None
        if job["status"] == "pending":
            served = is_served(job["queue"], job["kind"], await read(list_workers(latest=0)))
        runtime = await read(served_runtime(job["kind"], job["queue"]))
    return Story(job, served, waiting, limit, steps, runtime, worker, attempts, original, replays)


def as_json(story: Story) -> dict[str, Any]:
    return {
        "job": story.job,
        "served": story.served,
        "waiting": story.waiting and story.waiting._asdict(),
        "limit": story.limit and story.limit._asdict(),
        "steps": [dict(step) for step in story.steps],
        "max_runtime": story.runtime and story.runtime._asdict(),
        "worker": story.worker and story.worker._asdict(),
        "attempts": [dict(attempt) for attempt in story.attempts],
        "replay_of": story.original,
        "replays": [replay._asdict() for replay in story.replays],
    }


def print_story(story: Story, database: str) -> None:
    """Print the story for people. `database`: the name, one of several; empty if there is only one."""
    job, worker, attempts = story.job, story.worker, story.attempts
    fields = {"database": database or None, **job}
    if job["max_attempts"] is None:
        fields["max_attempts"] = "no limit"
    table.print_table(("field", "value"), [(name, value) for name, value in fields.items() if value is not None])
    for reason in _reasons(job, story.waiting, story.steps) if story.waiting is not None else ():
        print(f"\n{reason}")
    if story.limit is not None:
        print(f"\nIt waits for a limit: {story.limit.text}.")
    if story.served is False:
        print(f"\nNo live worker takes {job['kind']} from the queue {job['queue']}.")
    if story.runtime is not None:
        why = "three leases, the default" if story.runtime.by_default else "max_runtime of its kind"
        print(f"\nAn attempt may run for {story.runtime.ms / 1000:g} s ({why}).")
    if job.get("suspect") is not None:
        alone = "alone" if job["suspect"] else "with no other job but those of its last worker"
        print(f"\nIts worker was lost while it ran: it runs apart, {alone}, until it ends in another way.")
    if worker is not None:
        ended = f", {worker.stop_reason} {table.text(worker.stopped_at)}" if worker.stopped_at else ""
        print(f"\nWorker {worker.id}: {worker.name}{ended}")
    if story.steps:
        print(f"\nSteps ({len(story.steps)})")
        table.print_table(
            ("at", "step", "key", "state", "until"), [(s.at, s.name, s.key, s.state, s.due) for s in story.steps]
        )
    if attempts:
        print(f"\nAttempts ({len(attempts)})")
        table.print_table(
            ("attempt", "outcome", "started", "seconds", "ended", "worker", "error"),
            [
                (a.attempt, a.outcome, a.started_at, a.seconds, a.ended_at, a.worker_name, a.error or a.error_code)
                for a in attempts
            ],
        )
        _print_traceback(attempts)
    else:
        print("\nNo attempt has ended.")
    if story.original is not None:
        print(f"\nReplays {story.original['id']}, which {story.original['status']}.")
    if story.replays:
        print("\nReplayed as")
        table.print_table(("id", "status", "created"), story.replays)


def _reasons(job: dict[str, Any], waiting: WaitingRow, steps: Sequence[StepLine]) -> Iterator[str]:
    waits = [
        step
        for step in steps
        if step.state in {"waits", "gathers"} or (step.state == "sleep" and step.due == waiting.due_at)
    ]
    for step in waits:
        until = "" if step.due is None else f", at most until {table.text(step.due)}"
        if step.state == "sleep":
            yield f"It sleeps, {step.name!r}, since {table.text(step.at)}, until {table.text(step.due)}."
        elif step.state == "gathers":
            yield f"It waits for the jobs of {step.name!r} since {table.text(step.at)}."
        else:
            yield f"It waits for the message {step.name!r} since {table.text(step.at)}{until}."
    if waiting.due_at is not None and not waits:
        yield f"It is due at {table.text(waiting.due_at)}."
    if waiting.paused:
        yield f"The queue {job['queue']} is paused: holdfast queues resume {job['queue']}"
    if waiting.blockers is not None:
        yield f"It waits for the end of {counted(waiting.blockers, 'chain')}."
    if waiting.stopped_by is not None:
        resume = f"holdfast jobs resume-key {shlex.quote(table.text(job['order_key']))}"
        yield f"Its order key is stopped by the dead letter {waiting.stopped_by}: retry that one, or {resume}"
    elif waiting.behind is not None:
        yield f"It waits for job {waiting.behind}, which comes before it in the order key."


def _print_traceback(attempts: Sequence[AttemptLine]) -> None:
    """Print the last traceback. All stored ones are in the JSON output."""
    last = next((attempt for attempt in reversed(attempts) if attempt.traceback), None)
    if last is not None and last.traceback:
        print(f"\nTraceback of attempt {last.attempt}")
        for line in last.traceback.split("\n"):
            print(f"  {table.text(line)}" if line else "")
