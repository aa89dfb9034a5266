"""A job that was enqueued (Handle), and what a handler receives (Job)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from holdfast.errors import HoldfastError
from holdfast.signal import AbortSignal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.connection import AsyncConnection, SyncConnection

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S_co = TypeVar("S_co", covariant=True)

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Handle(Generic[R]):
    """A job that was enqueued, or the one that was there already under its unique key.

    R is what its chain ends with: `wait` returns it and `complete_chain` takes it, so a Handle[bool] is no Handle[int].
    """

    id: int
    chain_id: int
    created: bool
    """False when a unique key matched a job that exists."""
    decode: Callable[[str | None], R] | None = field(default=None, repr=False, compare=False)
    """Reads the chain's result from JSON text."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Handle, (self.id, self.chain_id, self.created)


class HasResult(Protocol[R_co]):
    """What names a chain and reads its result, as a Handle does.

    Covariant, where a Handle is not: who only reads may take the result for something wider.
    """

    @property
    def chain_id(self) -> int: ...
    @property
    def decode(self) -> Callable[[str | None], R_co] | None: ...


class Blocker(NamedTuple):
    """A chain that a job came after, and how it ended. `kind.result(blocker)` reads its result."""

    chain_id: int
    status: Literal["completed", "failed", "cancelled"] | None
    """A deleted chain counts as cancelled. None: it lives; only a job that was called off sees that."""
    result: str | None
    """JSON text."""
    error_code: str | None
    error: str | None


class Progress(NamedTuple):
    fraction: float
    """From 0 to 1."""
    note: str | None = None
    """At most 200 characters; more is cut."""


class Run(Protocol):
    """What a job asks of the worker that runs it."""

    @property
    def blockers(self) -> tuple[Blocker, ...]: ...
    async def complete(self, conn: AsyncConnection, result: object) -> None: ...
    def complete_sync(self, conn: SyncConnection, result: object) -> None: ...
    def report(self, progress: Progress) -> None: ...


class Job(Generic[S_co]):
    """What a handler receives first.

    >>> Job(id=7, kind="receipt.send", state=None).idempotency_key
    'holdfast:7'
    """

    __slots__ = ("_idempotency_key", "_run", "attempt", "chain_id", "headers", "id", "kind", "signal", "state", "token")

    def __init__(  # noqa: PLR0913 - one keyword per thing a handler may ask
        self,
        *,
        id: int,  # noqa: A002 - the word for it everywhere
        kind: str,
        state: S_co,
        attempt: int = 1,
        token: int = 0,
        chain_id: int | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        signal: AbortSignal | None = None,
        idempotency_key: str | None = None,
        run: Run | None = None,
    ) -> None:
        self.id = id
        self.kind = kind
        self.state = state
        """What the application's lifespan yielded; shared by all handlers."""
        self.attempt = attempt
        """The number of this run; the first is 1."""
        self.token = token
        """Larger at every claim: hand it to systems that can refuse a stale one."""
        self.chain_id = id if chain_id is None else chain_id
        """The id of the chain's first job."""
        self.headers = headers
        self.signal = AbortSignal() if signal is None else signal
        """Fires when this attempt should stop, with the reason."""
        self._idempotency_key = idempotency_key
        self._run = run

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.kind} attempt {self.attempt}>"

    @property
    def idempotency_key(self) -> str:
        """The same at every attempt, and no other job's in this database."""
        return self._idempotency_key or f"holdfast:{self.id}"

    @property
    def log(self) -> logging.Logger:
        """A logger whose lines carry this job, its kind, its chain and the worker."""
        return logging.getLogger("holdfast.job")

    @property
    def blockers(self) -> tuple[Blocker, ...]:
        """The chains this job came after, in the order in which it named them."""
        return () if self._run is None else self._run.blockers

    async def complete(self, conn: AsyncConnection, result: T) -> T:
        """Complete this job, with a result or a Continue, in the transaction that `conn` is in; return what was given.

        Make it the last statement before the commit: what was written before commits together with the completion, or
        not at all. LeaseLost when the job is no longer ours: then roll back.
        """
        await self._running.complete(conn, result)
        return result

    def complete_sync(self, conn: SyncConnection, result: T) -> T:
        """Do as `complete` does, on a sync connection."""
        self._running.complete_sync(conn, result)
        return result

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Say how far the job has come, from 0 to 1. As often as you like: it is written about once a second."""
        if not 0 <= fraction <= 1:
            raise ValueError("progress: from 0 to 1")
        if self._run is not None:
            self._run.report(Progress(fraction, note))

    @property
    def _running(self) -> Run:
        if self._run is None:
            raise HoldfastError(f"job {self.id} is not run by a worker: nobody holds it")
        return self._run
