"""Enqueueing: however many jobs, one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import InvalidJob
from holdfast.job import Handle
from holdfast.new_job import MOST_BLOCKERS
from holdfast.store.statement import Row, Statement, statements
from holdfast.trace import TRACEPARENT, current_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.new_job import NewJob
    from holdfast.store.statement import Parameter


def enqueue_job(job: NewJob[Any]) -> Statement[Handle[Any]]:
    """Insert one job."""
    envelope = job.envelope
    if not envelope.plain:
        many = enqueue_jobs([job])
        return Statement(many.sql, many.params, lambda rows: many.read(rows)[0])
    params: dict[str, Parameter] = {
        "kind": envelope.kind,
        "payload": job.payload,
        "queue": envelope.queue,
        "priority": envelope.priority,
        "max_attempts": envelope.max_attempts,
    }
    name, trace = "enqueue_job", current_trace()
    if trace is not None:
        name = "enqueue_traced_job"
        params["headers"] = f'{{"{TRACEPARENT}":"{trace}"}}'
    return Statement(
        statements()[name], params, lambda rows: Handle(rows[0][0], rows[0][0], created=True, decode=job.decode)
    )


def enqueue_jobs(jobs: Sequence[NewJob[Any]]) -> Statement[list[Handle[Any]]]:
    """Insert the jobs; the handles come back in the order given."""

    def handles(rows: Sequence[Row]) -> list[Handle[Any]]:
        return [
            Handle(job_id, chain_id, created, job.decode)
            for (job_id, chain_id, created), job in zip(rows, jobs, strict=True)
        ]

    return Statement(statements()["enqueue_jobs"], {"jobs": _text(jobs)}, handles)


def enqueue_group(jobs: Sequence[NewJob[Any]], last: NewJob[Any]) -> Statement[Handle[Any]]:
    """Insert the jobs and one that comes after all their chains; answer with the handle of that one."""
    if len(jobs) + len(last.envelope.after) > MOST_BLOCKERS:
        raise InvalidJob(f"after: at most {MOST_BLOCKERS} chains")
    params: dict[str, Parameter] = {
        "jobs": _text(jobs),
        "last": last.as_json(current_trace()),
        "run_anyway": last.envelope.if_blocker_fails == "run",
    }

    def handle(rows: Sequence[Row]) -> Handle[Any]:
        job_id, chain_id, created = rows[0]
        return Handle(job_id, chain_id, created, last.decode)

    return Statement(statements()["enqueue_group"], params, handle)


def _text(jobs: Sequence[NewJob[Any]]) -> str:
    trace = current_trace()
    return f"[{','.join([job.as_json(trace) for job in jobs])}]"
