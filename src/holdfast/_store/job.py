"""One job or one chain by its id: reads it; enqueues a job again after it failed, and changes when it is due."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast

from holdfast._model.errors import HoldfastError
from holdfast._model.job import Progress
from holdfast._store.chain import MOST, ChainEnd, End, result_of
from holdfast._store.statement import Row, Statement, one, statement, time_text, value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta

    from holdfast._model.handle import Handle

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

JobStatus: TypeAlias = Literal["blocked", "pending", "processing", "completed", "failed", "cancelled"]
Decode: TypeAlias = "Callable[[str | None], Any]"
DecodePayload: TypeAlias = "Callable[[str], object]"
RetryStatus: TypeAlias = Literal["retried", "already_retried", "duplicate", "not_failed"]
Rescheduling: TypeAlias = Literal["rescheduled", "processing", "blocked", "not_found"]


class GroupProgress(NamedTuple):
    """How many of the chains that a job comes after or gathers have come how far."""

    done: int
    failed: int
    """They did not complete: they failed, or were cancelled or deleted."""
    waiting: int
    """They have not ended."""


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
    stored_result: str | None = field(repr=False)
    """JSON text."""
    error_code: str | None
    """Of the last attempt that failed."""
    error: str | None
    next_id: int | None
    """The job that continued the chain."""
    replay_of: int | None
    """The failed job that this one retries."""
    blockers_left: int | None
    """How many chains must still end before it runs. None: it comes after none, or has ended."""
    worker: str | None
    """The name of the worker that runs it, or ran it last. None: it waits, or that worker is no longer stored."""
    started_at: datetime | None
    """When the attempt that runs, or its only attempt, started. None: it waits, or has ended after several."""
    group: GroupProgress | None
    """How far the chains have come that it comes after or gathers. None: there are none, or it has ended."""
    tags: tuple[str, ...]
    headers: Mapping[str, str] = field(repr=False)
    stored_payload: str | None = field(repr=False)
    """JSON text, as the codec encoded it."""
    progress: Progress | None
    decode: Callable[[str | None], R_co] = field(repr=False, compare=False)
    """Decodes the result from JSON text."""
    decode_payload: Callable[[str], object] = field(repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Whether the job has completed, failed or was cancelled."""
        return self.finished_at is not None

    @property
    def arguments(self) -> object:
        """The payload as JSON data: for most jobs, the handler's arguments by name. They are not validated."""
        return self.decode_payload(self.stored_payload or "null")

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
class JobList:
    """A page of jobs, as `list_jobs` returns it."""

    jobs: tuple[JobInfo[object], ...]
    """Newest first. Their results are plain JSON values."""
    next: int | None
    """The `before` of the next page. None: there are no more. A page may be short: a search looks at so many jobs."""


@dataclass(frozen=True)
class Chain(Generic[R_co]):
    """A chain with its jobs so far."""

    id: int
    jobs: tuple[JobInfo[R_co], ...]
    """Oldest first; a longer chain has only its last 1,000 jobs here. The result of the chain is that of the last."""

    @property
    def status(self) -> str:
        """The status of its last job."""
        return self.jobs[-1].status

    @property
    def result(self) -> R_co:
        """The chain's result; raises ChainFailed when it did not complete, HoldfastError while it is live."""
        last = self.jobs[-1]
        if not last.ended:
            raise HoldfastError(f"chain {self.id} has not ended: its job {last.id} is {last.status}")
        if last.next_id is not None:
            # The job after the last one was deleted, so the end of the chain is unknown.
            return result_of(self.id, ChainEnd(last.id, "not_found", None, None, None), last.decode)
        return last.result


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


def get_job(job_id: int, decode: Decode = str, arguments: DecodePayload = str) -> Statement[JobInfo[Any] | None]:
    """Return a job, live or ended; None if it does not exist or is no longer stored.

    `decode`: its result, of JSON. `arguments`: its payload.
    """
    return statement("get_job", lambda rows: job_info(rows[0], decode, arguments) if rows else None, id=job_id)


def read_chain(
    chain: int, decode: Decode = str, arguments: DecodePayload | None = None, *, limit: int = MOST
) -> Statement[tuple[JobInfo[Any], ...]]:
    """Return the last `limit` jobs of a chain, oldest first.

    `decode`: the result of the chain, of JSON. `arguments`: the payloads. Default: they are not read.
    """
    return statement(
        "read_chain",
        lambda rows: tuple(job_info(row, decode, arguments or str) for row in reversed(rows)),
        chain=chain,
        limit=limit,
        payloads=arguments is not None,
    )


def read_group(job_id: int) -> Statement[GroupProgress | None]:
    """Return how far the chains have come that a live job comes after or gathers; None if there are none."""
    return statement("read_group", lambda rows: GroupProgress(*rows[0][0]) if rows and rows[0][0] else None, id=job_id)


def job_info(row: Row, decode: Decode, arguments: DecodePayload) -> JobInfo[Any]:
    """Return the job of a row with these columns."""
    *fields, group, tags, headers, payload, progress, note = row
    fields += [GroupProgress(*group) if group else None, tuple(tags or ())]
    fields += [json.loads(headers) if headers else {}, payload]
    fields += [None if progress is None else Progress(progress, note), decode, arguments]
    return JobInfo(*fields)


def retry_job(job_id: int, *, again: bool = False) -> Statement[RetryRow]:
    """Enqueue a dead letter as a new job that refers to it. `again`: even if a replay is live or has completed."""
    return statement("retry_job", one(RetryRow), id=job_id, again=again)


def reschedule_job(
    job_id: int, *, due: datetime | None = None, delay: timedelta | None = None
) -> Statement[Rescheduling]:
    """Change when a waiting job is due: at `due`, or after `delay` by PostgreSQL's clock."""
    seconds = None if delay is None else delay.total_seconds()
    return statement("reschedule_job", value, id=job_id, due=time_text(due), seconds=seconds)
