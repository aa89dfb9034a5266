"""The one way of reporting: every transition of a job, and of the worker itself, goes to a list of observers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from holdfast._logs.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from holdfast._engine.attempt import Attempt
    from holdfast._logs.failure import Failure
    from holdfast._model.outcome import Outcome
    from holdfast._store.claim import ClaimedJob
    from holdfast._store.enqueue import EnqueuedJob
    from holdfast._store.lease import DeadWorker, ReapedJob

    Listener: TypeAlias = "Callable[[Transition], None]"
    Endings: TypeAlias = Callable[[Sequence[Outcome | None]], None]

Name: TypeAlias = Literal[
    "worker_started",
    "worker_stopping",
    "worker_stopped",
    "worker_lost",
    "database_added",
    "database_removed",
    "job_enqueued",
    "job_claimed",
    "job_completed",
    "job_retried",
    "job_rescheduled",
    "job_released",
    "job_failed",
    "job_cancelled",
    "job_reaped",
    "job_completed_elsewhere",
    "job_lost",
    "runner_already_running",
]

Cause: TypeAlias = Literal["call", "schedule", "subscription", "chain", "replay"]
"""Why a job was enqueued. `call`: by the application."""

FAILURES = frozenset({"job_retried", "job_failed"})

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Transition:
    name: Name
    worker: str
    job: int | None = None
    kind: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class EndedBatch(NamedTuple):
    """Attempts that ended, in three lists of the same length."""

    names: Sequence[Name]
    attempts: Sequence[Attempt]
    outcomes: Sequence[Outcome | None]
    """None: the claim was lost."""


class Observer:
    """Receives what happened to jobs, once per batch, in the worker's loop. Exceptions are logged.

    The methods take the worker's name first, which is empty outside of workers. By default they do nothing.
    """

    spans: Spans | None = None
    """The spans around attempts and publishing; None: none."""

    def __call__(self, transition: Transition, /) -> None:
        """Receive a single transition: of a worker, of a runner, or of a job that was cancelled while it waited."""

    def enqueued(self, worker: str, jobs: Sequence[EnqueuedJob], cause: Cause) -> None:
        """Receive jobs that this process enqueued, in a transaction that may not have committed yet."""

    def looked(self, worker: str, found: int, seconds: float) -> None:
        """Receive one claim. `found`: how many jobs it took, which may be 0. `seconds`: its duration in seconds."""

    def claimed(self, worker: str, attempts: Sequence[Attempt]) -> None:
        """Receive the jobs that the worker holds from now on."""

    def ended(self, worker: str, batch: EndedBatch) -> None:
        """Receive attempts whose outcome is written or that were lost."""

    def reaped(self, worker: str, jobs: Sequence[ReapedJob]) -> None:
        """Receive the result of one pass of a reaper, which may be empty."""

    def ticked(self, worker: str, ticked: Ticked) -> None:
        """Receive a tick that was not skipped."""

    def relayed(self, worker: str, subscription: str, *, confirmed: int = 0, refused: int = 0) -> None:
        """Receive events of a subscription.

        `confirmed`: the number of events that became jobs or that a sink confirmed. Default: 0.
        `refused`: the number of refused deliveries. Default: 0.
        """


class Transitions:
    """The one way to report: every observer is called, in the order they were added.

    An exception, even SystemExit, is logged and does no harm.
    """

    def __init__(self, worker: str, observers: Sequence[Listener | Observer]) -> None:
        """Each listener that is no observer is called for each job."""
        self.worker = worker
        self._observers = tuple(o if isinstance(o, Observer) else EachJob(o) for o in observers)
        self.spans: Spans | None = next((o.spans for o in self._observers if o.spans is not None), None)

    def __bool__(self) -> bool:
        """Whether there is any observer."""
        return bool(self._observers)

    def tell(self, name: Name, job: int | None = None, kind: str | None = None, **details: object) -> None:
        transition = Transition(name, self.worker, job, kind, details)
        self._each(name, lambda observer: observer(transition))

    def enqueued(self, jobs: Sequence[EnqueuedJob], cause: Cause) -> None:
        if jobs:
            self._each("enqueued", lambda observer: observer.enqueued(self.worker, jobs, cause))

    def looked(self, jobs: Sequence[ClaimedJob], seconds: float) -> None:
        self._each("looked", lambda observer: observer.looked(self.worker, len(jobs), seconds))

    def claimed(self, attempts: Sequence[Attempt]) -> None:
        self._each("claimed", lambda observer: observer.claimed(self.worker, attempts))

    def ended(self, batch: EndedBatch) -> None:
        self._each("ended", lambda observer: observer.ended(self.worker, batch))

    def reaped(self, jobs: Sequence[ReapedJob]) -> None:
        self._each("reaped", lambda observer: observer.reaped(self.worker, jobs))

    def died(self, lost: DeadWorker) -> None:
        """Report another worker that died."""
        self.tell("worker_lost", lost_worker=lost.name, host=lost.host, pid=lost.pid, heartbeat_at=lost.heartbeat_at)

    def ticked(self, ticked: Ticked) -> None:
        self._each("ticked", lambda observer: observer.ticked(self.worker, ticked))

    def relayed(self, subscription: str, *, confirmed: int = 0, refused: int = 0) -> None:
        self._each("relayed", lambda o: o.relayed(self.worker, subscription, confirmed=confirmed, refused=refused))

    def _each(self, name: str, call: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            _guarded(name, partial(call, observer))


class EachJob(Observer):
    """Calls a listener of the application for each job of a batch."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def __call__(self, transition: Transition, /) -> None:
        self._listener(transition)

    def enqueued(self, worker: str, jobs: Sequence[EnqueuedJob], cause: Cause) -> None:
        """Report the jobs whose ids are known."""
        for job in jobs:
            if job.id is not None:
                self._tell("job_enqueued", worker, job, queue=job.queue, cause=cause, source=job.source)

    def claimed(self, worker: str, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            job = attempt.claimed
            self._tell("job_claimed", worker, job, attempt=job.attempt, **_where(attempt))

    def ended(self, worker: str, batch: EndedBatch) -> None:
        for name, attempt, outcome in zip(*batch, strict=True):
            if outcome is None:
                self._tell(name, worker, attempt.claimed, reason=attempt.signal.reason, **_where(attempt))
            else:
                self._tell(name, worker, attempt.claimed, outcome=outcome, **_where(attempt))

    def reaped(self, worker: str, jobs: Sequence[ReapedJob]) -> None:
        for job in jobs:
            self._tell("job_reaped", worker, job, stale=job.stale, became=job.answer)

    def _tell(self, name: Name, worker: str, job: EnqueuedJob | ClaimedJob | ReapedJob, **details: object) -> None:
        # One failure does not keep the other jobs from the listener.
        _guarded(name, partial(self._listener, Transition(name, worker, job.id, job.kind, details)))


def _where(attempt: Attempt) -> dict[str, str]:
    """Return the database of an attempt, if the worker serves several: ids are unique within one."""
    label = attempt.completer.label
    return {"database": label} if label else {}


def _guarded(name: str, call: Callable[[], None]) -> None:
    try:
        call()
    except BaseException:
        # No exception of a listener may do harm, not even SystemExit.
        log.exception("a listener failed", extra={"transition": name})


class Spans(Protocol):
    def attempts(self, worker: str, attempts: Sequence[Attempt]) -> AbstractContextManager[Endings]:
        """Surround one call of a handler. The yielded function takes the outcomes, in the order of the attempts."""
        ...

    def step(self, attempt: Attempt, name: str, key: str | None) -> AbstractContextManager[None]:
        """Surround one step of a story, inside of its attempt."""
        ...

    def publish(
        self, subscription: str, topic: str, message_id: str, trace: str | None
    ) -> AbstractContextManager[None]:
        """Surround one delivery of an event. `trace`: the publisher's."""
        ...


TickOutcome: TypeAlias = Literal["completed", "failed", "cancelled", "lost", "skipped"]
Skipped: TypeAlias = Literal["already running", "not due", "lock held elsewhere", "no time left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """The result of a tick."""

    runner: str
    outcome: TickOutcome
    counts: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    failure: Failure | None = None
    why: Skipped | None = None
    """Why it was skipped."""
    database: str = ""
    next_look: float | None = None
    """Seconds until the next look is useful, if known."""

    @property
    def busy(self) -> bool:
        """Whether it did any work."""
        return any(self.counts.values())
