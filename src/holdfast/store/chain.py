"""Chains: ending one from outside its worker's batches, deleting whole ones, looking at them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast

from holdfast.errors import ChainFailed, HoldfastError
from holdfast.store.statement import Row, Statement, number_array, statements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

Completion: TypeAlias = Literal["completed", "already_ended", "not_found"]
End: TypeAlias = Literal["completed", "failed", "cancelled", "not_found"]

MOST = 1000
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
    """The job that followed it."""
    replay_of: int | None
    blockers_left: int | None
    progress: float | None
    progress_note: str | None


class ChainLine(NamedTuple):
    """A chain in a list: its first job, and its last so far."""

    id: int
    kind: str
    last_id: int
    last_kind: str
    status: str
    """That of its last job."""
    created_at: datetime
    finished_at: datetime | None


class ChainEnd(NamedTuple):
    """How a chain ended."""

    job_id: int | None
    status: End
    """`not_found`: it was deleted, has aged out, or was never committed."""
    result: str | None
    """JSON text."""
    error_code: str | None
    error: str | None


@dataclass(frozen=True)
class Chain(Generic[R_co]):
    """A chain, and its jobs so far."""

    id: int
    jobs: tuple[ChainJob, ...]
    """Oldest first; of a longer chain the last thousand."""
    decode: Callable[[str | None], R_co] = field(repr=False, compare=False)
    """Reads the chain's result from JSON text."""

    @property
    def status(self) -> str:
        """That of its last job."""
        return self.jobs[-1].status

    @property
    def result(self) -> R_co:
        """What it ended with; ChainFailed when it did not complete, HoldfastError while it lives."""
        last = self.jobs[-1]
        if last.finished_at is None:
            raise HoldfastError(f"chain {self.id} has not ended: its job {last.id} is {last.status}")
        # What followed its last job was deleted, and with it how the chain would have ended.
        status = cast("End", last.status) if last.next_id is None else "not_found"
        return result_of(self.id, ChainEnd(last.id, status, last.result, last.error_code, last.error), self.decode)


def result_of(chain: int, end: ChainEnd, decode: Callable[[str | None], R]) -> R:
    """Return what a chain ended with; ChainFailed when it did not complete."""
    if end.status != "completed":
        gone = "it was never committed, was deleted, or ended too long ago" if end.status == "not_found" else None
        raise ChainFailed(chain, end.status, end.error_code, end.error or gone)
    return decode(end.result)


def complete_chain(chain: int, result: str | None = None, next: str | None = None) -> Statement[Completion]:  # noqa: A002 - the word for it everywhere
    """Complete a chain, whatever its job does just now; `result` and `next` are JSON text, as in Completed."""
    return Statement(
        statements()["complete_chain"], {"chain": chain, "result": result, "next": next}, lambda rows: rows[0][0]
    )


def delete_chains(chains: Iterable[int], *, cascade: bool = False) -> Statement[list[int]]:
    """Delete chains, ended or alive, and all that is kept of them; answer with those there were. At most 1,000.

    Refused with ChainAwaited when a job of another chain waits for one of them; or, with `cascade`, that goes too.
    """
    params: dict[str, str | bool] = {"chains": number_array(chains), "cascade": cascade}
    return Statement(statements()["delete_chains"], params, lambda rows: [row[0] for row in rows])


def chain_ends(chains: Iterable[int]) -> Statement[dict[int, ChainEnd]]:
    """Answer with how those chains ended that live no more."""
    return Statement(
        statements()["chain_ends"],
        {"chains": number_array(chains)},
        lambda rows: {chain: ChainEnd(*end) for chain, *end in rows},
    )


def read_chain(chain: int, *, most: int = MOST) -> Statement[list[ChainJob]]:
    """Answer with the last jobs of a chain, oldest first."""
    return Statement(
        statements()["read_chain"],
        {"chain": chain, "most": most},
        lambda rows: [ChainJob._make(row) for row in reversed(rows)],
    )


def list_chains(
    *, kind: str | None = None, status: str | None = None, before: int | None = None, most: int = 100
) -> Statement[list[ChainLine]]:
    """Answer with chains by the kind of their first job and the status of their last, newest first.

    The next page is `before` the last chain of this one. Ask after `limit_time`: a rare status may take the whole time.
    """
    if not 1 <= most <= MOST:
        raise ValueError(f"a list has 1 to {MOST} chains, not {most}")
    params = {"kind": kind, "status": status, "before": _LAST_ID if before is None else before, "most": most}
    return Statement(statements()["list_chains"], params, _chain_lines)


def _chain_lines(rows: Sequence[Row]) -> list[Any]:
    return [ChainLine._make(row) for row in rows]
