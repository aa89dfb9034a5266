"""One attempt at a job, from the claim until its outcome is written."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from holdfast._drivers import run, run_sync
from holdfast._logs.kept import job_logger
from holdfast._model.errors import AbortReason, AbortSignal, InvalidStep
from holdfast._model.step import Steps
from holdfast._store.finish import Ending
from holdfast._store.lease import Held

if TYPE_CHECKING:
    import asyncio
    from collections import Counter
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager
    from logging import Logger

    from holdfast._logs.kept import KeptLog
    from holdfast._model.connection import AsyncConnection, SyncConnection
    from holdfast._model.job import Blocker, Progress
    from holdfast._model.kind import Kind
    from holdfast._model.outcome import Busy, Outcome
    from holdfast._model.work import Lease
    from holdfast._store.claim import ClaimedJob
    from holdfast._store.enqueue import EnqueuedJob
    from holdfast._store.statement import Statement


class AttemptOwner(Protocol):
    """The part of a worker that an attempt needs, for one database.

    A protocol, since `jobs/complete.py`, which implements it, works on attempts.
    """

    schema: str
    """The identity of the database's schema."""
    database: str
    """The name of the database."""

    @property
    def worker(self) -> int:
        """The id of the worker's row."""
        ...

    @property
    def label(self) -> str:
        """The name of the database for logs and metrics; empty if the worker serves only one."""
        ...

    def complete(self, attempt: Attempt, result: object) -> Statement[None]:
        """Return the statement that completes the job."""
        ...

    def complete_batch(self, ends: Mapping[Attempt, object]) -> Statement[list[Attempt]]:
        """Return the statement that completes many jobs; its value is the attempts whose claim is lost."""
        ...

    def steps(self, attempt: Attempt) -> AttemptSteps:
        """Return the steps of an attempt, at its first verb."""
        ...

    def report(self, attempt: Attempt, progress: Progress) -> None:
        """Record the job's progress. May be called from any thread."""

    def served(self, kind: str) -> int | None:
        """Return the newest payload version that a live worker accepts, or None while that is unknown."""
        ...


class Spans(Protocol):
    """The part of tracing that an attempt needs. A protocol, since `report`, which has all of it, works on attempts."""

    def step(self, attempt: Attempt, name: str, key: str | None) -> AbstractContextManager[None]:
        """Surround one step of a story, inside of the span of its attempt."""
        ...


class AttemptSteps(Steps, Protocol):
    """The steps of one attempt. A protocol, since `jobs/steps.py`, which implements it, works on attempts."""

    counts: Counter[str]
    """How many steps were `recorded`, `replayed` or `failed`."""

    @property
    def progressed(self) -> bool:
        """Whether the attempt has recorded anything."""
        ...

    async def end(self) -> None:
        """Wait until everything that has run is recorded."""

    async def outcome_of(self, exc: BaseException | None) -> Outcome | BaseException | None:
        """Return the outcome of a suspended attempt, or else the error to end it with. None: the handler returned."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Attempt(Ending):
    """A claim of this worker, from the moment it is taken until its outcome is written.

    `outcome` is set when the attempt has ended, `traceback` and `log` when the outcome is written.
    """

    claimed: ClaimedJob
    kind: Kind[..., Any]
    lease: Lease
    completer: AttemptOwner
    blockers: tuple[Blocker, ...] = ()
    _: KW_ONLY
    outcome: Outcome = field(init=False)
    traceback: str | None = None
    log: str | None = None
    kept: KeptLog | None = None
    """Its last log records, if its kind keeps them; the attempts of one call share them."""
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
    spans: Spans | None = None
    """Makes the spans of its steps; None: none are made."""
    story: AttemptSteps | None = None
    """Its steps; None: it has called no verb of a story."""
    follower: EnqueuedJob | None = None
    """The next job in the chain if this one completes."""

    def __post_init__(self) -> None:
        self.held = Held(self.claimed.id, self.claimed.token)
        self.in_loop = self.kind.is_async

    @property
    def has_started(self) -> bool:
        return self.task is not None

    @property
    def lane(self) -> ReadyLane:
        return self.claimed.queue, self.kind.work.in_process

    @property
    def longest(self) -> float:
        """The maximum runtime of the handler in seconds."""
        return self.kind.work.longest(self.lease)

    def abort(self, reason: AbortReason) -> None:
        """Fire the abort signal. An async handler is cancelled; a thread must check the signal."""
        if self.signal.abort(reason):
            self.cancel()

    @property
    def idempotency_key(self) -> str:
        parts = ("holdfast", self.completer.schema, self.claimed.created, self.claimed.id)
        return ":".join(str(part) for part in parts if part)

    @property
    def database(self) -> str:
        return self.completer.database

    @property
    def steps(self) -> AttemptSteps:
        if self.group is not None:
            raise InvalidStep("the job of a batch records no steps: it shares its handler with others")
        if self.story is None:
            self.story = self.completer.steps(self)
        return self.story

    @property
    def number(self) -> int:
        """The number of this attempt, counted since a step was last recorded."""
        return 1 if self.story is not None and self.story.progressed else self.claimed.attempt

    async def complete(self, conn: AsyncConnection, result: object) -> None:
        await run(conn, self.completer.complete(self, result))

    def complete_sync(self, conn: SyncConnection, result: object) -> None:
        run_sync(conn, self.completer.complete(self, result))

    @property
    def logger(self) -> Logger:
        return self.kept or job_logger

    def report(self, progress: Progress) -> None:
        self.completer.report(self, progress)

    def cancel(self) -> None:
        """Cancel an async handler once the signals of all its jobs have fired. Call only in the event loop's thread."""
        alone = self.group is None or all(attempt.signal.aborted for attempt in self.group)
        if self.task is not None and self.entered and self.in_loop and alone:
            self.task.cancel()


ReadyLane: TypeAlias = tuple[str, bool]
"""Jobs of a queue that wait for the same: for a slot, or, if the second is true, for a slot and a process."""
