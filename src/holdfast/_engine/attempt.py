"""One attempt at a job, from the claim until its outcome is written."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from holdfast._model.errors import AbortSignal
from holdfast._store.lease import Held

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence
    from concurrent.futures import Future

    from holdfast._model.connection import AsyncConnection, SyncConnection
    from holdfast._model.errors import AbortReason
    from holdfast._model.job import Blocker, Busy, Progress
    from holdfast._model.kind import Kind
    from holdfast._model.work import Lease
    from holdfast._store.claim import ClaimedJob
    from holdfast._store.enqueue import EnqueuedJob


class AttemptOwner(Protocol):
    """The part of a worker that an attempt needs, for one database."""

    worker: int
    """The id of the worker's row."""

    async def complete(self, attempt: Attempt, conn: AsyncConnection, result: object) -> None:
        """Complete the job in the transaction of an asynchronous connection."""

    def complete_sync(self, attempt: Attempt, conn: SyncConnection, result: object) -> None:
        """Complete the job in the transaction of a synchronous connection."""

    def report(self, attempt: Attempt, progress: Progress) -> None:
        """Record the job's progress. May be called from any thread."""

    def served(self, kind: str) -> int | None:
        """Return the newest payload version that a live worker accepts, or None while that is unknown."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Attempt:
    """A claim of this worker, from the moment it is taken until its outcome is written."""

    claimed: ClaimedJob
    kind: Kind[..., Any]
    lease: Lease
    completer: AttemptOwner
    blockers: tuple[Blocker, ...] = ()
    _: KW_ONLY
    held: Held = field(init=False)
    in_loop: bool = field(init=False)
    """Whether the handler is a coroutine, which can be cancelled."""
    signal: AbortSignal = field(default_factory=AbortSignal)
    task: asyncio.Task[None] | None = None
    """Set while the handler runs."""
    entered: bool = False
    """Whether the task took its first step. A task cancelled before that never runs, and has no outcome."""
    started_at: float = 0.0
    """When the handler was called, by the monotonic clock; 0: not yet."""
    seconds: float | None = None
    """How many seconds the handler took; None until it has ended."""
    held_since: int = 0
    """The number of the dispatcher's check at which this job started to wait for a slot."""
    deadline: float | None = None
    """When the handler will have run too long, by the monotonic clock; None while it does not run."""
    busy: Busy | None = None
    """Raised by the handler when it sent the job back because the service it calls is saturated."""
    group: Sequence[Attempt] | None = None
    """All attempts that one call of a batch handler runs."""
    calls: list[Future[Any]] | None = None
    """The calls that were submitted to threads; None: none."""
    over: bool = False
    """Whether the outcome is known: no more code of this attempt may start."""
    overran: str = ""
    """The error text when a limit other than `max_runtime` was exceeded."""
    completed: bool = False
    """Whether the handler completed the job in its own transaction, which may or may not have committed."""
    follower: EnqueuedJob | None = None
    """The next job in the chain if this one completes."""

    def __post_init__(self) -> None:
        self.held = Held(self.claimed.id, self.claimed.token)
        self.in_loop = self.kind.is_async

    @property
    def has_started(self) -> bool:
        return self.task is not None

    @property
    def longest(self) -> float:
        """The maximum runtime of the handler in seconds."""
        return self.kind.work.longest(self.lease)

    def abort(self, reason: AbortReason) -> None:
        """Fire the abort signal. An async handler is cancelled; a thread must check the signal."""
        if self.signal.abort(reason):
            self.cancel()

    async def complete(self, conn: AsyncConnection, result: object) -> None:
        await self.completer.complete(self, conn, result)

    def complete_sync(self, conn: SyncConnection, result: object) -> None:
        self.completer.complete_sync(self, conn, result)

    def report(self, progress: Progress) -> None:
        self.completer.report(self, progress)

    def cancel(self) -> None:
        """Cancel an async handler once the signals of all its jobs have fired. Call only in the event loop's thread."""
        alone = self.group is None or all(attempt.signal.aborted for attempt in self.group)
        if self.task is not None and self.entered and self.in_loop and alone:
            self.task.cancel()
