"""Chains: completes one from outside a worker, deletes whole chains, and reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast

from holdfast._model.errors import ChainFailed, HoldfastError, JobMoved
from holdfast._model.job import Blocker
from holdfast._store.statement import (
    Row,
    Statement,
    column,
    many,
    number_array,
    one,
    one_or_none,
    statement,
    unless_moved,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime


Completion: TypeAlias = Literal["completed", "already_ended", "not_found"]
End: TypeAlias = Literal["completed", "failed", "cancelled", "not_found", "moved"]

MOST = 1000
STATUSES = ("blocked", "pending", "processing", "completed", "failed", "cancelled")
_LAST_ID = 2**63 - 1

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class ChainJob(NamedTuple):
    """One job of a chain."""

    id: int
    kind: str
    status: str
    queue: str
    attempt: int
    created_at: datetime
    available_at: datetime
    finished_at: datetime | None
    result: str | None
    """JSON text."""
    error_code: str | None
    error: str | None
    next_id: int | None
    """The next job of the chain."""
    replay_of: int | None
    blockers_left: int | None
    progress: float | None
    progress_note: str | None


class ChainLine(NamedTuple):
    """A chain in a list: its first job, and its last job so far."""

    id: int
    kind: str
    last_id: int
    last_kind: str
    status: str
    """The status of its last job."""
    created_at: datetime
    finished_at: datetime | None


class ChainEnd(NamedTuple):
    """How a chain ended."""

    job_id: int | None
    status: End
    """`not_found`: it was deleted, has expired from the history, or was never committed. `moved`: it is in another
    database, whose name is the `error`, as the chain `job_id`; None: it has not arrived there."""
    result: str | None
    """JSON text."""
    error_code: str | None
    error: str | None


class UnfinishedJob(NamedTuple):
    """The live job of a chain, and what it waits for."""

    id: int
    kind: str
    queue: str
    status: str
    attempt: int
    later: bool
    """Whether it is not due yet."""
    paused: bool
    """Whether its queue is paused."""
    served: bool
    """Whether a live worker serves its queue and kind."""


@dataclass(frozen=True)
class Chain(Generic[R_co]):
    """A chain with its jobs so far."""

    id: int
    jobs: tuple[ChainJob, ...]
    """Oldest first; a longer chain has only its last 1,000 jobs here."""
    decode: Callable[[str | None], R_co] = field(repr=False, compare=False)
    """Decodes the chain's result from JSON text."""

    @property
    def status(self) -> str:
        """The status of its last job."""
        return self.jobs[-1].status

    @property
    def result(self) -> R_co:
        """The chain's result; raises ChainFailed when it did not complete, HoldfastError while it is live."""
        last = self.jobs[-1]
        if last.finished_at is None:
            raise HoldfastError(f"chain {self.id} has not ended: its job {last.id} is {last.status}")
        # The job after the last one was deleted, so the end of the chain is unknown.
        status = cast("End", last.status) if last.next_id is None else "not_found"
        return result_of(self.id, ChainEnd(last.id, status, last.result, last.error_code, last.error), self.decode)


def result_of(chain: int, end: ChainEnd, decode: Callable[[str | None], R]) -> R:
    """Return the result of a chain; raises ChainFailed when it did not complete, JobMoved if it has moved."""
    if end.status == "moved":
        raise JobMoved(chain, end.error or "", end.job_id)
    if end.status != "completed":
        gone = "it was never committed, was deleted, or ended too long ago: call wait after your commit"
        raise ChainFailed(chain, end.status, end.error_code, gone if end.status == "not_found" else end.error)
    return decode(end.result)


def complete_chain(chain: int, result: str | None = None, next: str | None = None) -> Statement[Completion]:  # noqa: A002 - the usual name
    """Complete a chain, whatever the state of its job. `result` and `next`: JSON text, as in Completed.

    Raises JobMoved if it has moved.
    """
    return statement("complete_chain", unless_moved(chain), chain=chain, result=result, next=next)


def delete_chains(chains: Iterable[int], *, cascade: bool = False) -> Statement[list[int]]:
    """Delete up to 1,000 chains, ended or live, with all their data; return the ids of those that existed.

    Raises ChainAwaited when a job of another chain waits for one of them; with `cascade`, its chain is deleted too.
    """
    return statement("delete_chains", column, chains=number_array(chains), cascade=cascade)


def moved_chain(chain: int, jobs: Sequence[ChainJob]) -> JobMoved | None:
    """Return the error for a chain of which a job has moved; None: none has."""
    moved = next((job for job in jobs if job.status == "moved"), None)
    return None if moved is None else JobMoved(chain, moved.error or "", moved.next_id)


def chain_ends(chains: Iterable[int]) -> Statement[dict[int, ChainEnd]]:
    """Return how these chains ended; live chains are left out."""
    return statement(
        "chain_ends", lambda rows: {chain: ChainEnd(*end) for chain, *end in rows}, chains=number_array(chains)
    )


def unfinished_job(chain: int) -> Statement[UnfinishedJob | None]:
    """Return the live job of a chain; None when it has none."""
    return statement("unfinished_job", one_or_none(UnfinishedJob), chain=chain)


def read_chain(chain: int, *, limit: int = MOST) -> Statement[list[ChainJob]]:
    """Return the last `limit` jobs of a chain, oldest first.

    A job that has moved has the status `moved`, the name of the database as its error, its chain there as the next job,
    and nothing else.
    """
    return statement(
        "read_chain", lambda rows: [ChainJob._make(row) for row in reversed(rows)], chain=chain, limit=limit
    )


def list_chains(
    *, kind: str | None = None, status: str | None = None, before: int | None = None, limit: int = 100
) -> Statement[list[ChainLine]]:
    """Return chains by the kind of their first job and the status of their last, newest first.

    For the next page, pass the last chain as `before`. Run it after `limit_time`: a rare status may take all the time.
    """
    if not 1 <= limit <= MOST:
        raise ValueError(f"limit: expected a number from 1 to {MOST}, got {limit}")
    if status is not None and status not in STATUSES:
        raise ValueError(f"status: expected one of {', '.join(STATUSES)}, got {status!r:.40}")
    before = _LAST_ID if before is None else before
    return statement("list_chains", many(ChainLine), kind=kind, status=status, before=before, limit=limit)


class Repair(NamedTuple):
    """The progress of a repair."""

    until: int
    """The chain after which the next repair starts; 0: start from the first."""
    repaired: int


def read_blockers(jobs: Iterable[int]) -> Statement[dict[int, list[Blocker]]]:
    """Return the blockers of each job that has any, in the order of its `after`."""
    return statement("read_blockers", _by_job, jobs=number_array(jobs))


def repair_blockers(*, since: int = 0, limit: int = 1000) -> Statement[Repair]:
    """Release jobs that missed the end of a blocker. It should never find any."""
    return statement("repair_blockers", one(Repair), since=since, limit=limit)


def _by_job(rows: Sequence[Row]) -> dict[int, list[Blocker]]:
    found: dict[int, list[Blocker]] = {}
    for job, *blocker in rows:
        found.setdefault(job, []).append(Blocker._make(blocker))
    return found
