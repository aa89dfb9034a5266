"""The whole story of a job, for `holdfast jobs show`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._cli import table
from holdfast._store.inspect import list_attempts, list_replays, read_job, read_worker
from holdfast._store.step import read_journal, step_lines
from holdfast._store.worker import served_runtime

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast._ops.responses.job import JobWait
    from holdfast._ops.service import Service
    from holdfast._store.inspect import AttemptLine, ReplayLine, WorkerRow
    from holdfast._store.step import StepLine
    from holdfast._store.worker import Runtime


class Story(NamedTuple):
    """A job, and everything that is known of it, from one snapshot."""

    job: dict[str, Any]
    waits: Sequence[JobWait]
    """Why it does not run now."""
    steps: Sequence[StepLine]
    runtime: Runtime | None
    worker: WorkerRow | None
    attempts: Sequence[AttemptLine]
    original: dict[str, Any] | None
    """The job that it replays."""
    replays: Sequence[ReplayLine]


async def read_story(service: Service, job_id: int) -> Story | None:
    from holdfast._ops.waits import read_waits

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
        journal = job.pop("steps")
        steps = await read(read_journal(job_id)) if journal is True else step_lines(journal)
        waits = await read_waits(transaction, job, steps)
        runtime = await read(served_runtime(job["kind"], job["queue"]))
    return Story(job, waits, steps, runtime, worker, attempts, original, replays)


def as_json(story: Story) -> dict[str, Any]:
    return {
        "job": story.job,
        "waits": [wait.model_dump(mode="json") for wait in story.waits],
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
    for wait in story.waits:
        print(f"\n{wait.text}" + (f" Run: {wait.command}" if wait.command else ""))
    for line in _times(story):
        print(f"\n{line}")
    if worker is not None:
        ended = f", {worker.stop_reason} {table.text(worker.stopped_at)}" if worker.stopped_at else ""
        version = f", version {worker.app_version}" if worker.app_version else ""
        print(f"\nWorker {worker.id}: {worker.name}{version}{ended}")
    if story.steps:
        print(f"\nSteps ({len(story.steps)})")
        table.print_table(
            ("at", "step", "key", "state", "until"), [(s.at, s.name, s.key, s.state, s.due) for s in story.steps]
        )
    if attempts:
        print(f"\nAttempts ({len(attempts)})")
        table.print_table(
            ("attempt", "outcome", "due", "waited", "started", "ran", "ended", "worker", "version", "error"),
            [
                (
                    a.attempt,
                    a.outcome,
                    a.due_at,
                    _span(a.waited),
                    a.started_at,
                    _span(a.seconds),
                    a.ended_at,
                    a.worker_name,
                    a.app_version,
                    a.error or a.error_code,
                )
                for a in attempts
            ],
        )
        _print_last("Traceback", [(line.attempt, line.traceback) for line in attempts])
        _print_last("Log", [(line.attempt, line.log) for line in attempts])
    else:
        print("\nNo attempt has ended.")
    if story.original is not None:
        print(f"\nReplays {story.original['id']}, which {story.original['status']}.")
    if story.replays:
        print("\nReplayed as")
        table.print_table(("id", "status", "created"), story.replays)


def _times(story: Story) -> Iterator[str]:
    """Tell how long the job waited and ran, in all its attempts, and for how long it may run."""
    from holdfast._ops.wording import counted

    job, limit = story.job, None
    if story.runtime is not None:
        why = "three leases, the default" if story.runtime.by_default else "max_runtime of its kind"
        limit = f"An attempt may run for {story.runtime.ms / 1000:g} s ({why})."
    running = job["status"] == "processing" and job.get("claimed_at")
    parts = [f"Running since {table.text(_time(running))}"] if running else []
    for name, word in (("waited_ms", "waited"), ("ran_ms", "ran")):
        if job.get(name) is not None:
            parts.append(f"{word} {_span(job[name] / 1000)}")
    if job.get("finished_at"):
        took = _time(job["finished_at"]) - _time(job.get("first_due_at") or job["available_at"])
        parts.append(f"took {_span(max(0.0, took.total_seconds()))} from first due to ended")
    if parts:
        line = ", ".join(parts)
        attempts = len(story.attempts) + bool(running)
        yield f"{line[0].upper()}{line[1:]}, in {counted(attempts, 'attempt')}."
    if limit:
        yield limit


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _span(seconds: float | None) -> str | None:
    return None if seconds is None else f"{float(f'{seconds:.3g}'):,g} s"


def _print_last(what: str, texts: Sequence[tuple[int, str | None]]) -> None:
    """Print the text of the last attempt that has one. All stored ones are in the JSON output."""
    attempt, text = next(((attempt, text) for attempt, text in reversed(texts) if text), (0, ""))
    if text:
        print(f"\n{what} of attempt {attempt}")
        for line in text.split("\n"):
            print(f"  {table.text(line)}" if line else "")
