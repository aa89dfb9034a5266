"""Enqueueing: however many jobs, one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.job import Handle
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

    trace = current_trace()
    text = f"[{','.join([job.as_json(trace) for job in jobs])}]"
    return Statement(statements()["enqueue_jobs"], {"jobs": text}, handles)
