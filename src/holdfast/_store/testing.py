"""Database access of the test kit: moves time in the rows, and reads jobs as they were enqueued."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.statement import Statement, number_array, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta

MOST = 10_000


class EnqueuedRow(NamedTuple):
    """A job as it was enqueued, except for its times, which the test kit may have moved."""

    id: int
    status: str
    payload: str | None
    headers: str | None
    queue: str
    priority: int
    max_attempts: int | None
    created_at: datetime
    available_at: datetime
    expires_at: datetime | None
    order_key: str | None
    order_block: bool
    unique_key: str | None
    after: list[int] | None
    """None: not stored in the history."""
    run_anyway: bool | None


class LentJob(NamedTuple):
    """A job that was moved to another queue, and the queue it came from."""

    queue: str
    kind: str


def catch_up() -> Statement[int]:
    """Move jobs that are due by the clock back to the transaction's now(); return how many."""
    return Statement(statements()["catch_up"], {"most": MOST}, len)


def due_queues(kinds: Iterable[str]) -> Statement[list[str]]:
    """Return the queues that have due jobs of these kinds, the most urgent first."""
    params: dict[str, str | int] = {"kinds": text_array(kinds), "most": MOST}
    return Statement(statements()["due_queues"], params, lambda rows: [queue for (queue,) in rows])


def lend_job(job_id: int, queue: str) -> Statement[LentJob | None]:
    """Move a waiting job into this queue, alone and due; None if it is not waiting."""
    params: dict[str, str | int] = {"id": job_id, "lent": queue}
    return Statement(statements()["lend_job"], params, lambda rows: LentJob._make(rows[0]) if rows else None)


def return_job(
    job_id: int, queue: str, *, lent: str, token: int | None = None, worker: int | None = None
) -> Statement[bool]:
    """Return a job to the queue it came from."""
    params: dict[str, str | int | None] = {
        "id": job_id,
        "queue": queue,
        "lent": lent,
        "token": token,
        "worker": worker,
    }
    return Statement(statements()["return_job"], params, bool)


def advance_jobs(span: timedelta, after: int = 0) -> Statement[int | None]:
    """Move the times of live jobs above id `after` back by `span`; return the last id, None at the end."""
    params: dict[str, str | int] = {"span": f"{span.total_seconds():.6f} seconds", "after": after, "most": MOST}
    return Statement(statements()["advance_jobs"], params, lambda rows: max((job for (job,) in rows), default=None))


def open_windows() -> Statement[dict[int, float]]:
    """Return the remaining seconds of unique windows, by job."""
    return Statement(statements()["open_windows"], {"most": MOST}, dict)


def end_windows(jobs: Iterable[int]) -> Statement[int]:
    """End the unique windows of these jobs."""
    return Statement(statements()["end_windows"], {"jobs": number_array(jobs)}, len)


def enqueued_jobs(kind: str) -> Statement[list[EnqueuedRow]]:
    """Return the jobs of a kind, including ended ones, oldest first."""
    params: dict[str, str | int] = {"kind": kind, "most": MOST}
    return Statement(statements()["enqueued_jobs"], params, lambda rows: [EnqueuedRow._make(row) for row in rows])


def enqueued_kinds(most: int = 20) -> Statement[dict[str, int]]:
    """Return the number of jobs of each kind."""
    return Statement(statements()["enqueued_kinds"], {"most": most}, dict)
