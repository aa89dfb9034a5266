"""What the kit for users' tests asks of a database: time moved in the rows, and jobs as they were enqueued."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.store.statement import Statement, number_array, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta

MOST = 10_000


class EnqueuedRow(NamedTuple):
    """A job as it was enqueued, but for the times, which may have been moved since."""

    id: int
    status: str
    payload: str | None
    headers: str | None
    queue: str
    priority: int
    max_attempts: int
    created_at: datetime
    available_at: datetime
    expires_at: datetime | None
    order_key: str | None
    order_block: bool
    unique_key: str | None
    after: list[int] | None
    """None: history does not know."""
    run_anyway: bool | None


class LentJob(NamedTuple):
    """A job that waits in another queue, and the one it came from."""

    queue: str
    kind: str


def catch_up() -> Statement[int]:
    """Move what is due by the clock to where now() stands; answer how many."""
    return Statement(statements()["catch_up"], {"most": MOST}, len)


def due_queues(kinds: Iterable[str]) -> Statement[list[str]]:
    """Answer with the queues that have due jobs of these kinds, the most urgent first."""
    params: dict[str, str | int] = {"kinds": text_array(kinds), "most": MOST}
    return Statement(statements()["due_queues"], params, lambda rows: [queue for (queue,) in rows])


def lend_job(job_id: int, queue: str) -> Statement[LentJob | None]:
    """Let a waiting job be the only one of this queue, and due; None if it does not wait."""
    params: dict[str, str | int] = {"id": job_id, "lent": queue}
    return Statement(statements()["lend_job"], params, lambda rows: LentJob._make(rows[0]) if rows else None)


def return_job(
    job_id: int, queue: str, *, lent: str, token: int | None = None, worker: int | None = None
) -> Statement[bool]:
    """Put a job back into the queue it came from."""
    params: dict[str, str | int | None] = {
        "id": job_id,
        "queue": queue,
        "lent": lent,
        "token": token,
        "worker": worker,
    }
    return Statement(statements()["return_job"], params, bool)


def advance_jobs(span: timedelta, after: int = 0) -> Statement[int | None]:
    """Let so much time pass for live jobs with a larger id; answer the last id to go on from, None at the end."""
    params: dict[str, str | int] = {"span": f"{span.total_seconds():.6f} seconds", "after": after, "most": MOST}
    return Statement(statements()["advance_jobs"], params, lambda rows: max((job for (job,) in rows), default=None))


def open_windows() -> Statement[dict[int, float]]:
    """Answer with how many seconds the unique windows still last, by the job that has them."""
    return Statement(statements()["open_windows"], {"most": MOST}, dict)


def end_windows(jobs: Iterable[int]) -> Statement[int]:
    """End the unique windows of these jobs."""
    return Statement(statements()["end_windows"], {"jobs": number_array(jobs)}, len)


def enqueued_jobs(kind: str) -> Statement[list[EnqueuedRow]]:
    """Answer with the jobs of a kind, ended ones too, oldest first."""
    params: dict[str, str | int] = {"kind": kind, "most": MOST}
    return Statement(statements()["enqueued_jobs"], params, lambda rows: [EnqueuedRow._make(row) for row in rows])


def enqueued_kinds(most: int = 20) -> Statement[dict[str, int]]:
    """Answer with how many jobs there are of each kind."""
    return Statement(statements()["enqueued_kinds"], {"most": most}, dict)
