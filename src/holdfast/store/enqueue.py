"""Enqueueing: however many jobs, one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.job import Handle, NewJob
from holdfast.store.statement import Row, Statement, statements

if TYPE_CHECKING:
    from collections.abc import Sequence


def enqueue_job(job: NewJob[Any]) -> Statement[Handle[Any]]:
    """Insert one job."""
    envelope = job.envelope
    if not envelope.plain:
        many = enqueue_jobs([job])
        return Statement(many.sql, many.params, lambda rows: _handles(rows)[0])
    return Statement(
        statements()["enqueue_job"],
        {
            "kind": envelope.kind,
            "payload": job.payload,
            "queue": envelope.queue,
            "priority": envelope.priority,
            "max_attempts": envelope.max_attempts,
        },
        _new_handle,
    )


def enqueue_jobs(jobs: Sequence[NewJob[Any]]) -> Statement[list[Handle[Any]]]:
    """Insert the jobs; the handles come back in the order given."""
    return Statement(statements()["enqueue_jobs"], {"jobs": f"[{','.join([job.as_json() for job in jobs])}]"}, _handles)


def _handles(rows: Sequence[Row]) -> list[Handle[Any]]:
    return [Handle(job_id, chain_id, created) for job_id, chain_id, created in rows]


def _new_handle(rows: Sequence[Row]) -> Handle[Any]:
    job_id: int = rows[0][0]
    return Handle(job_id, job_id, created=True)
