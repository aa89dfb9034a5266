"""One job by its id: reads it, enqueues it again after it failed, and changes when it is due."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast

from holdfast._model.errors import HoldfastError, JobMoved
from holdfast._model.job import Handle, Progress
from holdfast._store.chain import ChainEnd, End, result_of
from holdfast._store.statement import Statement, one, one_or_none, statement, time_text, value

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

JobStatus: TypeAlias = Literal["blocked", "pending", "processing", "completed", "failed", "cancelled"]
RetryStatus: TypeAlias = Literal["retried", "already_retried", "duplicate", "not_failed"]
Rescheduling: TypeAlias = Literal["rescheduled", "processing", "blocked", "not_found"]


class JobColumns(NamedTuple):
    """The columns of a job, live or ended."""

    id: int
    chain_id: int
    kind: str
    queue: str
    status: JobStatus
    priority: int
    attempt: int
    max_attempts: int | None
    created_at: datetime
    available_at: datetime
    finished_at: datetime | None
    unique_key: str | None
    order_key: str | None
    cancel_requested: bool
    result: str | None
    error_code: str | None
    error: str | None
    next_id: int | None
    replay_of: int | None
    progress: float | None
    progress_note: str | None

    @property
    def moved(self) -> bool:
        """Whether it is in another database: its name is the `error`, and the job's id there the `next_id`."""
        return str(self.status) == "moved"


@dataclass(frozen=True)
class JobInfo(Generic[R_co]):
    """A job as it is stored now: waiting, running or ended."""

    id: int
    chain_id: int
    """The id of the chain's first job."""
    kind: str
    queue: str
    status: JobStatus
    """`blocked`, `pending`, `processing`, `completed`, `failed` or `cancelled`."""
    priority: int
    attempt: int
    """How many attempts have started."""
    max_attempts: int | None
    """None: no limit."""
    created_at: datetime
    available_at: datetime
    """When the job is due, or was."""
    finished_at: datetime | None
    """None while it is live."""
    unique_key: str | None
    order_key: str | None
    cancel_requested: bool
    """True while the worker that runs the job is asked to stop it."""
    error_code: str | None
    """Of the last attempt that failed."""
    error: str | None
    next_id: int | None
    """The job that continued the chain."""
    replay_of: int | None
    """The failed job that this one retries."""
    progress: Progress | None
    stored_result: str | None = field(repr=False)
    """JSON text."""
    decode: Callable[[str | None], R_co] = field(repr=False, compare=False)
    """Decodes the result from JSON text."""

    @property
    def ended(self) -> bool:
        """Whether the job has completed, failed or was cancelled."""
        return self.finished_at is not None

    @property
    def result(self) -> R_co:
        """The job's result; raises ChainFailed when it did not complete, HoldfastError when it has none.

        A job has no result while it is live, and when it continued its chain: then `get_chain` or `wait` returns the
        result of the chain.
        """
        if not self.ended:
            raise HoldfastError(f"job {self.id} has not ended: it is {self.status}")
        if self.next_id is not None:
            raise HoldfastError(f"job {self.id} continued its chain {self.chain_id} with job {self.next_id}")
        end = ChainEnd(self.id, cast("End", self.status), self.stored_result, self.error_code, self.error)
        return result_of(self.chain_id, end, self.decode)


@dataclass(frozen=True)
class RetryResult(Generic[R]):
    """The answer to `retry`."""

    status: RetryStatus
    """`retried`, `already_retried`, `duplicate` (a live job has its unique key) or `not_failed`."""
    handle: Handle[R] | None
    """The new job; if there is none, the job that is in the way. None: `not_failed`."""


class RetryRow(NamedTuple):
    answer: RetryStatus
    made: int | None
    chain_id: int | None
    kind: str | None
    queue: str | None


def get_job(job_id: int) -> Statement[JobColumns | None]:
    """Return a job, live or ended; None if it does not exist or is no longer stored."""
    return statement("get_job", one_or_none(JobColumns), id=job_id)


def job_info(row: JobColumns, decode: Callable[[str | None], Any]) -> JobInfo[Any]:
    """Return a job for callers; raises JobMoved if it has moved."""
    if row.moved:
        raise JobMoved(row.id, row.error or "", row.next_id)
    columns = row._asdict()
    progress, note, result = (columns.pop(name) for name in ("progress", "progress_note", "result"))
    reported = None if progress is None else Progress(progress, note)
    return JobInfo(**columns, progress=reported, stored_result=result, decode=decode)


def retry_job(job_id: int, *, again: bool = False) -> Statement[RetryRow]:
    """Enqueue a dead letter as a new job that refers to it. `again`: even if a replay is live or has completed."""
    return statement("retry_job", one(RetryRow), id=job_id, again=again)


def reschedule_job(
    job_id: int, *, due: datetime | None = None, delay: timedelta | None = None
) -> Statement[Rescheduling]:
    """Change when a waiting job is due: at `due`, or after `delay` by PostgreSQL's clock."""
    seconds = None if delay is None else delay.total_seconds()
    return statement("reschedule_job", value, id=job_id, due=time_text(due), seconds=seconds)
