"""Database access of the test kit: moves time in the rows, and reads jobs as they were enqueued."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast._store.statement import Statement, column, many, number_array, one_or_none, statement, text_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta

T = TypeVar("T")

MOST = 10_000


class LentJob(NamedTuple):
    """A job that was moved to another queue, and the queue it came from."""

    queue: str
    kind: str


def catch_up() -> Statement[int]:
    """Move jobs that are due by the clock back to the transaction's now(); return how many."""
    return statement("catch_up", len, limit=MOST)


def due_queues(kinds: Iterable[str]) -> Statement[list[str]]:
    """Return the queues that have due jobs of these kinds, the most urgent first."""
    return statement("due_queues", column, kinds=text_array(kinds), limit=MOST)


def lend_job(job_id: int, queue: str) -> Statement[LentJob | None]:
    """Move a waiting job into this queue, alone and due; None if it is not waiting."""
    return statement("lend_job", one_or_none(LentJob), id=job_id, lent=queue)


def return_job(
    job_id: int, queue: str, *, lent: str, token: int | None = None, worker: int | None = None
) -> Statement[bool]:
    """Return a job to the queue it came from."""
    return statement("return_job", bool, id=job_id, queue=queue, lent=lent, token=token, worker=worker)


def advance_jobs(span: timedelta, after: int = 0) -> Statement[int | None]:
    """Move the times of live jobs above id `after` back by `span`; return the last id, None at the end."""
    return statement(
        "advance_jobs",
        lambda rows: max((job for (job,) in rows), default=None),
        span=f"{span.total_seconds():.6f} seconds",
        after=after,
        limit=MOST,
    )


class SuspendedStory(NamedTuple):
    """A story that waits at a step."""

    step: str
    sleeps: timedelta | None
    """How long it still sleeps; None: it waits for a message, or for jobs."""


def suspended_stories() -> Statement[list[SuspendedStory]]:
    """Return the steps at which stories wait or sleep."""
    return statement("suspended_stories", many(SuspendedStory), limit=MOST)


def open_windows() -> Statement[dict[int, float]]:
    """Return the remaining seconds of unique windows, by job."""
    return statement("open_windows", dict, limit=MOST)


def end_windows(jobs: Iterable[int]) -> Statement[int]:
    return statement("end_windows", len, jobs=number_array(jobs))


def enqueued_jobs(kind: str, made: Callable[..., T]) -> Statement[list[T]]:
    """Return what is made of each job of a kind, including ended ones, oldest first. Its times may have been moved."""
    return statement("enqueued_jobs", many(made), kind=kind, limit=MOST)


def enqueued_kinds(limit: int = 20) -> Statement[dict[str, int]]:
    return statement("enqueued_kinds", dict, limit=limit)


class UnreadEvent(NamedTuple):
    id: int
    key: str | None
    trace: str | None
    payload: str
    """The payload of the job that a worker would make of the event."""


def unread_events(topics: Iterable[str], *, after: int) -> Statement[list[UnreadEvent]]:
    """Return events of these topics after the id `after`, in the order of their ids."""
    return statement("unread_events", many(UnreadEvent), topics=text_array(topics), after=after, limit=MOST)
