"""One attempt at a job, from the claim until its outcome is written; those that wait for a slot; their deadlines."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from holdfast._drivers import run, run_sync
from holdfast._model.errors import AbortReason, AbortSignal
from holdfast._store.finish import Ending
from holdfast._store.lease import Held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from holdfast._model.connection import AsyncConnection, SyncConnection
    from holdfast._model.job import Blocker, Busy, Outcome, Progress
    from holdfast._model.kind import Kind
    from holdfast._model.work import Lease
    from holdfast._store.claim import ClaimedJob
    from holdfast._store.enqueue import EnqueuedJob
    from holdfast._store.statement import Statement


class AttemptOwner(Protocol):
    """The part of a worker that an attempt needs, for one database."""

    worker: int
    """The id of the worker's row."""
    schema: str
    """The identity of the database's schema."""
    database: str
    """The name of the database."""

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

    def report(self, attempt: Attempt, progress: Progress) -> None:
        """Record the job's progress. May be called from any thread."""

    def served(self, kind: str) -> int | None:
        """Return the newest payload version that a live worker accepts, or None while that is unknown."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Attempt(Ending):
    """A claim of this worker, from the moment it is taken until its outcome is written.

    `outcome` is set when the attempt has ended, and `traceback` when the outcome is written.
    """

    claimed: ClaimedJob
    kind: Kind[..., Any]
    lease: Lease
    completer: AttemptOwner
    blockers: tuple[Blocker, ...] = ()
    _: KW_ONLY
    outcome: Outcome = field(init=False)
    traceback: str | None = None
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

    @property
    def schema(self) -> str:
        return self.completer.schema

    @property
    def database(self) -> str:
        return self.completer.database

    async def complete(self, conn: AsyncConnection, result: object) -> None:
        await run(conn, self.completer.complete(self, result))

    def complete_sync(self, conn: SyncConnection, result: object) -> None:
        run_sync(conn, self.completer.complete(self, result))

    def report(self, progress: Progress) -> None:
        self.completer.report(self, progress)

    def cancel(self) -> None:
        """Cancel an async handler once the signals of all its jobs have fired. Call only in the event loop's thread."""
        alone = self.group is None or all(attempt.signal.aborted for attempt in self.group)
        if self.task is not None and self.entered and self.in_loop and alone:
            self.task.cancel()


class ReadyJobs:
    """The ready jobs of one database, ordered by queue, then by priority, then by claim."""

    def __init__(
        self, ended: Callable[[Attempt, Outcome | None], None], give_back: Callable[[Sequence[Attempt]], None]
    ) -> None:
        """`ended(attempt, outcome)`: a handler has ended; `give_back(attempts)`: these will not start here."""
        self.ended = ended
        self.give_back = give_back
        self.tasks: set[asyncio.Task[None]] = set()
        """The handlers that run."""
        self._queues: dict[str, dict[int, deque[Attempt]]] = {}

    def __bool__(self) -> bool:
        """Whether any job waits."""
        return any(self._queues.values())

    def add(self, attempt: Attempt) -> None:
        claimed = attempt.claimed
        levels = self._queues.setdefault(claimed.queue, {})
        if (waiting := levels.get(claimed.priority)) is None:
            waiting = levels[claimed.priority] = deque()
            if len(levels) > 1:
                self._queues[claimed.queue] = dict(sorted(levels.items()))
        waiting.append(attempt)

    def take(self, may_start: Callable[[str], bool]) -> Attempt | None:
        """Take the next job of the queue whose turn it is, among those that may start a job."""
        for queue, levels in self._queues.items():
            if levels and may_start(queue):
                level, waiting = next(iter(levels.items()))
                attempt = waiting.popleft()
                if not waiting:
                    del levels[level]
                if len(self._queues) > 1:
                    self._queues[queue] = self._queues.pop(queue)
                return attempt
        return None

    def take_more(self, first: Attempt, limit: int) -> list[Attempt]:
        """Take more jobs of the same queue, priority and kind, in their order."""
        levels = self._queues[first.claimed.queue]
        waiting = levels.get(first.claimed.priority, deque())
        more = list(islice((attempt for attempt in waiting if attempt.kind is first.kind), limit))
        if more:
            taken = set(more)
            levels[first.claimed.priority] = left = deque(attempt for attempt in waiting if attempt not in taken)
            if not left:
                del levels[first.claimed.priority]
        return more

    @property
    def queues(self) -> list[str]:
        """The queues that have waiting jobs."""
        return [queue for queue, levels in self._queues.items() if levels]

    def take_all(self, queues: Iterable[str]) -> list[Attempt]:
        """Remove and return all jobs of these queues. They have not started."""
        found = [self._queues.pop(queue, {}) for queue in queues]
        return [attempt for levels in found for waiting in levels.values() for attempt in waiting]

    def take_old(self, queue: str, since: int) -> list[Attempt]:
        """Remove and return the jobs of the queue that have waited since that check or longer."""
        old, levels = [], self._queues[queue]
        for level, waiting in list(levels.items()):
            while waiting and waiting[0].held_since <= since:
                old.append(waiting.popleft())
            if not waiting:
                del levels[level]
        return old


# A timer may fire this many seconds early.
EARLY = 0.005
# Deadlines within this many seconds of each other are checked together.
SPACING = 0.02


class Deadlines:
    """One timer for all attempts, set to the first deadline: a timer per attempt would cost every job.

    The heartbeat checks deadlines too: it does not renew leases past their deadline, and its thread fires signals
    while a handler blocks the event loop.
    """

    def __init__(self, held: Sequence[Mapping[Held, Attempt]], clock: Callable[[], float]) -> None:
        self._held = held
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self.next = math.inf
        """When the next check is, by the monotonic clock."""

    def ring_at(self, deadline: float) -> None:
        """Check at this time, which is before the next planned check."""
        if self._timer is not None:
            self._timer.cancel()
        self.next = deadline
        self._timer = asyncio.get_running_loop().call_later(max(0.0, deadline - self._clock()), self._ring)

    def _ring(self) -> None:
        self._timer, self.next = None, math.inf
        now = self._clock()
        first = math.inf
        for attempt in [attempt for held in self._held for attempt in held.values()]:
            if (deadline := attempt.deadline) is None or attempt.signal.aborted:
                continue
            if deadline <= now + EARLY:
                attempt.abort(AbortReason.timeout)
            elif deadline < first:
                first = deadline
        if first < self.next:
            self.ring_at(max(first, now + SPACING))
