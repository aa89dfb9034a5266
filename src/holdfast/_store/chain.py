"""Chains: completes one from outside a worker, deletes whole chains, and lists them. `job` reads one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

from holdfast._model.errors import ChainFailed, InvalidJob
from holdfast._model.job import Blocker
from holdfast._store.statement import Row, Statement, column, many, number_array, one, one_or_none, statement, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime


Completion: TypeAlias = Literal["completed", "already_ended", "not_found"]
End: TypeAlias = Literal["completed", "failed", "cancelled", "not_found"]

MOST = 1000
STATUSES = ("blocked", "pending", "processing", "completed", "failed", "cancelled")
_LAST_ID = 2**63 - 1

R = TypeVar("R")


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
    """`not_found`: it was deleted, has expired from the history, or was never committed."""
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
    error_code: str | None
    """Of its last attempt, or of the last worker that could not read its payload."""
    error: str | None


def result_of(chain: int, end: ChainEnd, decode: Callable[[str | None], R]) -> R:
    """Return the result of a chain; raises ChainFailed when it did not complete."""
    if end.status != "completed":
        gone = "it was never committed, was deleted, or ended too long ago: call wait after your commit"
        raise ChainFailed(chain, end.status, end.error_code, gone if end.status == "not_found" else end.error)
    return decode(end.result)


def complete_chain(chain: int, result: str | None = None, next: str | None = None) -> Statement[Completion]:  # noqa: A002 - the usual name
    """Complete a chain, whatever the state of its job. `result` and `next`: JSON text, as in Completed."""
    return statement("complete_chain", value, chain=chain, result=result, next=next).storing(InvalidJob)


def delete_chains(chains: Iterable[int], *, cascade: bool = False) -> Statement[list[int]]:
    """Delete up to 1,000 chains, ended or live, with all their data; return the ids of those that existed.

    Raises ChainAwaited when a job of another chain waits for one of them; with `cascade`, its chain is deleted too.
    """
    return statement("delete_chains", column, chains=number_array(chains), cascade=cascade)


def chain_ends(chains: Iterable[int]) -> Statement[dict[int, ChainEnd]]:
    """Return how these chains ended; live chains are left out."""
    return statement(
        "chain_ends", lambda rows: {chain: ChainEnd(*end) for chain, *end in rows}, chains=number_array(chains)
    )


def unfinished_job(chain: int) -> Statement[UnfinishedJob | None]:
    return statement("unfinished_job", one_or_none(UnfinishedJob), chain=chain)


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


class Pass(NamedTuple):
    """A pass over chains or over their ends, and how many it changed."""

    until: int
    """The one after which the next pass starts; 0: start from the first."""
    rows: int


def read_blockers(
    jobs: Iterable[int], *, gathered: bool = False, most: int = _LAST_ID
) -> Statement[dict[int, list[Blocker]]]:
    """Return the blockers of each job that has any, in the order of its `after`, and then those of its group.

    `gathered`: also the chains that it waits for as a story. `most`: blockers in all. Default: no limit.
    """
    return statement("read_blockers", _by_job, jobs=number_array(jobs), gathered=gathered, most=most)


def repair_blockers(*, since: int = 0, limit: int = 1000) -> Statement[Pass]:
    """Find jobs that missed the end of a blocker, for `release_waiters`. It should never find any."""
    return statement("repair_blockers", one(Pass), since=since, limit=limit)


def release_waiters(*, limit: int = 500) -> Statement[int]:
    """Release at most `limit` jobs that wait for chains which ended with too many waiters for one statement."""
    return statement("release_waiters", value, limit=limit)


def delete_kept_ends(*, since: int = 0, limit: int = 1000) -> Statement[Pass]:
    """Delete the ends that were kept for waiters, and that none needs any more; look at `limit` of them."""
    return statement("delete_kept_ends", one(Pass), since=since, limit=limit)


def delete_groups(*, since: int = 0, limit: int = 1000) -> Statement[Pass]:
    """Delete the rows of groups whose last job has left; look at `limit` of them."""
    return statement("delete_groups", one(Pass), since=since, limit=limit)


def _by_job(rows: Sequence[Row]) -> dict[int, list[Blocker]]:
    found: dict[int, list[Blocker]] = {}
    shared: dict[int, str | None] = {}
    for job, end, chain, status, result, *error in rows:
        shown = result if end is None else shared.setdefault(end, result)
        found.setdefault(job, []).append(Blocker._make((chain, status, shown, *error)))
    return found
