"""Enqueueing: however many jobs, one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.job import Handle
from holdfast.store.statement import Row, Statement, statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.new_job import NewJob


def enqueue_job(job: NewJob[Any]) -> Statement[Handle[Any]]:
    """Insert one job."""
    envelope = job.envelope
    if not envelope.plain:
        many = enqueue_jobs([job])
        return Statement(many.sql, many.params, lambda rows: many.read(rows)[0])
    return Statement(
        statements()["enqueue_job"],
        {
            "kind": envelope.kind,
            "payload": job.payload,
            "queue": envelope.queue,
            "priority": envelope.priority,
            "max_attempts": envelope.max_attempts,
        },
        lambda rows: Handle(rows[0][0], rows[0][0], created=True, decode=job.decode),
    )


def enqueue_jobs(jobs: Sequence[NewJob[Any]]) -> Statement[list[Handle[Any]]]:
    """Insert the jobs; the handles come back in the order given."""

    def handles(rows: Sequence[Row]) -> list[Handle[Any]]:
        return [
            Handle(job_id, chain_id, created, job.decode)
            for (job_id, chain_id, created), job in zip(rows, jobs, strict=True)
        ]

    return Statement(statements()["enqueue_jobs"], {"jobs": f"[{','.join([job.as_json() for job in jobs])}]"}, handles)
