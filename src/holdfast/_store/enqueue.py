"""Enqueueing: inserts any number of jobs with one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._logs.log import TRACEPARENT, current_trace
from holdfast._model.errors import InvalidJob
from holdfast._model.handle import Handle
from holdfast._model.new_job import check_group
from holdfast._store.statement import Parameter, Row, Statement, statement, statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._model.new_job import NewJob


class EnqueuedJob(NamedTuple):
    """A job that this process enqueued, for listeners and metrics."""

    id: int | None
    """None: unknown in this process."""
    kind: str
    queue: str
    source: str | int | None = None
    """The schedule, subscription, previous job of its chain, or dead letter that it came from."""


def enqueue_job(job: NewJob[Any]) -> Statement[Handle[Any]]:
    envelope = job.envelope
    if not envelope.plain:
        return enqueue_jobs([job]).then(lambda handles: handles[0])
    trace = current_trace()
    params: dict[str, Parameter] = {
        "kind": envelope.kind,
        "payload": job.payload,
        "queue": envelope.queue,
        "priority": envelope.priority,
        "max_attempts": envelope.attempts,
        "headers": None if trace is None else f'{{"{TRACEPARENT}":"{trace}"}}',
    }
    return Statement(
        statements()["enqueue_job"],
        params,
        lambda rows: Handle(rows[0][0], rows[0][0], created=True, decode=job.decode, encode=job.encode),
        InvalidJob,
    )


def enqueue_jobs(jobs: Sequence[NewJob[Any]]) -> Statement[list[Handle[Any]]]:
    """Insert the jobs and return their handles in the same order."""

    def handles(rows: Sequence[Row]) -> list[Handle[Any]]:
        return [
            Handle(job_id, chain_id, created, job.decode, job.encode)
            for (job_id, chain_id, created), job in zip(rows, jobs, strict=True)
        ]

    plain = all(job.envelope.plain for job in jobs)
    return statement("enqueue_jobs", handles, jobs=jobs_text(jobs), plain=plain).storing(InvalidJob)


def enqueue_group(jobs: Sequence[NewJob[Any]], last: NewJob[Any]) -> Statement[Handle[Any]]:
    """Insert the jobs, and `last`, which runs after all their chains; return the handle of `last`."""
    check_group(jobs, last)
    return statement(
        "enqueue_group",
        lambda rows: _handle(rows[0], last),
        jobs=jobs_text(jobs),
        last=last.as_json(current_trace()),
        run_anyway=last.envelope.if_blocker_fails == "run",
        plain=all(job.envelope.plain for job in jobs),
    ).storing(InvalidJob)


def _handle(row: Row, job: NewJob[Any]) -> Handle[Any]:
    job_id, chain_id, created = row
    return Handle(job_id, chain_id, created, job.decode, job.encode)


def jobs_text(jobs: Sequence[NewJob[Any]]) -> str:
    """Return the jobs as the text of a JSON array, as SQL takes them."""
    trace = current_trace()
    return f"[{','.join([job.as_json(trace) for job in jobs])}]"
