"""The handle of an enqueued job (Handle), and the job that a handler receives (Job)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from holdfast._model.errors import HoldfastError
from holdfast._model.signal import AbortSignal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast._model.connection import AsyncConnection, SyncConnection

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S_co = TypeVar("S_co", covariant=True)

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Handle(Generic[R]):
    """A job that was enqueued, or the existing job with the same unique key.

    R is the type of its chain's result: `wait` returns it and `complete_chain` takes it, so Handle is invariant.
    """

    id: int
    chain_id: int
    created: bool
    """False when a job with this unique key existed already."""
    decode: Callable[[str | None], R] | None = field(default=None, repr=False, compare=False)
    """Decodes the chain's result from JSON text."""
    encode: Callable[[Any], object] | None = field(default=None, repr=False, compare=False)
    """Converts the chain's result to JSON-serializable values."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Handle, (self.id, self.chain_id, self.created)


class HasResult(Protocol[R_co]):
    """An object that names a chain and decodes its result, as a Handle does.

    Unlike Handle it is covariant, because it is only read from.
    """

    @property
    def chain_id(self) -> int: ...
    @property
    def decode(self) -> Callable[[str | None], R_co] | None: ...


class Blocker(NamedTuple):
    """A chain that had to end before this job, and how it ended. `kind.result(blocker)` decodes its result."""

    chain_id: int
    status: Literal["completed", "failed", "cancelled"] | None
    """A deleted chain counts as cancelled. None: it is still live; only cancelled jobs see that."""
    result: str | None
    """JSON text."""
    error_code: str | None
    error: str | None


class Progress(NamedTuple):
    """How far a job has come, as `job.progress` reported it."""

    fraction: float
    """From 0 to 1."""
    note: str | None = None
    """At most 200 characters; longer notes are cut."""


class Run(Protocol):
    """The services that a worker provides to the job it runs."""

    @property
    def blockers(self) -> tuple[Blocker, ...]: ...
    async def complete(self, conn: AsyncConnection, result: object) -> None: ...
    def complete_sync(self, conn: SyncConnection, result: object) -> None: ...
    def report(self, progress: Progress) -> None: ...


class Job(Generic[S_co]):
    """The job that a handler receives as its first argument.

    >>> Job(id=7, kind="receipt.send", state=None).idempotency_key
    'holdfast:7'
    """

    __slots__ = ("_idempotency_key", "_run", "attempt", "chain_id", "headers", "id", "kind", "signal", "state", "token")

    def __init__(  # noqa: PLR0913 - one keyword per attribute
        self,
        *,
        id: int,  # noqa: A002 - the usual name
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
        """The value that the application's lifespan yielded; shared by all handlers."""
        self.attempt = attempt
        """The number of this attempt; the first is 1."""
        self.token = token
        """A fencing token that grows with every claim: pass it to systems that can reject stale ones."""
        self.chain_id = id if chain_id is None else chain_id
        """The id of the chain's first job."""
        self.headers = headers
        self.signal = AbortSignal() if signal is None else signal
        """Fires with the reason when this attempt should stop."""
        self._idempotency_key = idempotency_key
        self._run = run

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.kind} attempt {self.attempt}>"

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt and unique to this job in this database."""
        return self._idempotency_key or f"holdfast:{self.id}"

    @property
    def log(self) -> logging.Logger:
        """A logger that adds this job, its kind, its chain and the worker to every line."""
        return logging.getLogger("holdfast.job")

    @property
    def blockers(self) -> tuple[Blocker, ...]:
        """The chains that had to end before this job, in the order of `after`."""
        return () if self._run is None else self._run.blockers

    async def complete(self, conn: AsyncConnection, result: T) -> T:
        """Complete this job in the transaction of `conn`, with a result or a Continue, and return that value.

        Call it as the last statement before the commit: earlier writes then commit together with the completion, or not
        at all. Raises LeaseLost when this worker no longer holds the job: then roll back.
        """
        await self._running.complete(conn, result)
        return result

    def complete_sync(self, conn: SyncConnection, result: T) -> T:
        """Complete this job on a synchronous connection. See `complete`."""
        self._running.complete_sync(conn, result)
        return result

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Report how far the job has come. Call it as often as you like: it is stored about once a second.

        `fraction`: from 0 to 1. `note`: at most 200 characters; longer notes are cut. Default: none.
        """
        if not 0 <= fraction <= 1:
            raise ValueError("progress: from 0 to 1")
        if self._run is not None:
            self._run.report(Progress(fraction, note))

    @property
    def _running(self) -> Run:
        if self._run is None:
            raise HoldfastError(f"job {self.id} is not run by a worker")
        return self._run
