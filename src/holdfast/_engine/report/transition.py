"""The notifications of in-process listeners: every transition of a job, and of the worker itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from holdfast._logs.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast._engine.attempt import Attempt
    from holdfast._logs.failure import Failure
    from holdfast._store.claim import ClaimedJob
    from holdfast._store.enqueue import EnqueuedJob
    from holdfast._store.lease import ReapedJob

    Listener: TypeAlias = "Callable[[Transition], None]"
    from contextlib import AbstractContextManager

    from holdfast._model.job import Outcome

    Endings: TypeAlias = Callable[[Sequence[Outcome | None]], None]
from typing import TYPE_CHECKING

Name: TypeAlias = Literal[
    "worker_started",
    "worker_stopping",
    "worker_stopped",
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

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Transition:
    name: Name
    worker: str
    job: int | None = None
    kind: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class Transitions:
    """Calls the listeners in the order they were added. An exception, even SystemExit, is logged and does no harm.

    Observers among them are called once per batch of jobs, not for each job.
    """

    def __init__(self, worker: str, listeners: Sequence[Listener]) -> None:
        self.worker = worker
        self._listeners = tuple(listener for listener in listeners if not isinstance(listener, Observer))
        self._observers = tuple(listener for listener in listeners if isinstance(listener, Observer))
        self.spans: Spans | None = next((o.spans for o in self._observers if o.spans is not None), None)

    def __bool__(self) -> bool:
        """Whether any listener is called for each job."""
        return bool(self._listeners)

    @property
    def told(self) -> bool:
        return bool(self._listeners or self._observers)

    def enqueued(self, jobs: Sequence[EnqueuedJob], cause: Cause) -> None:
        """Report jobs that this process enqueued: to listeners those with known ids, to observers all."""
        if not jobs:
            return
        for job in jobs if self._listeners else ():
            if job.id is not None:
                self.tell("job_enqueued", job.id, job.kind, queue=job.queue, cause=cause, source=job.source)
        for observer in self._observers:
            self._call("enqueued", partial(observer.enqueued, jobs))

    def claimed(self, jobs: Sequence[ClaimedJob], seconds: float) -> None:
        for observer in self._observers:
            self._call("claimed", partial(observer.claimed, self.worker, jobs, seconds))

    def ended(self, names: Sequence[Name], attempts: Sequence[Attempt]) -> None:
        for observer in self._observers:
            self._call("ended", partial(observer.ended, self.worker, names, attempts))

    def reaped(self, jobs: Sequence[ReapedJob]) -> None:
        for job in jobs if self._listeners else ():
            self.tell("job_reaped", job.id, job.kind, stale=job.stale, became=job.answer)
        for observer in self._observers:
            self._call("reaped", partial(observer.reaped, self.worker, jobs))

    def ticked(self, ticked: Ticked) -> None:
        for observer in self._observers:
            self._call("ticked", partial(observer.ticked, self.worker, ticked))

    def relayed(self, subscription: str, *, confirmed: int = 0, refused: int = 0) -> None:
        for observer in self._observers:
            call = partial(observer.relayed, self.worker, subscription, confirmed=confirmed, refused=refused)
            self._call("relayed", call)

    def tell(self, name: Name, job: int | None = None, kind: str | None = None, **details: object) -> None:
        told: tuple[Listener, ...] = self._listeners if job is not None else (*self._listeners, *self._observers)
        if not told:
            return
        transition = Transition(name, self.worker, job, kind, details)
        for listener in told:
            self._call(name, partial(listener, transition))

    def _call(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException:
            # No exception of a listener may do harm, not even SystemExit.
            log.exception("a listener failed", extra={"transition": name})


@runtime_checkable
class Observer(Protocol):
    """A listener that is called per batch, in the worker's loop, with the worker's name. Exceptions are logged."""

    @property
    def spans(self) -> Spans | None:
        """The spans around attempts and publishing; None: none."""
        ...

    def __call__(self, transition: Transition, /) -> None:
        """Receive a transition that is not about a job."""

    def enqueued(self, jobs: Sequence[EnqueuedJob]) -> None:
        """Receive jobs that this process enqueued, in a transaction that may not have committed yet."""

    def claimed(self, worker: str, jobs: Sequence[ClaimedJob], seconds: float) -> None:
        """Receive the result of one claim, which may be empty."""

    def ended(self, worker: str, names: Sequence[Name], attempts: Sequence[Attempt]) -> None:
        """Receive attempts whose outcome is written or that were lost, with the name of each transition."""

    def reaped(self, worker: str, jobs: Sequence[ReapedJob]) -> None:
        """Receive the result of one pass of a reaper, which may be empty."""

    def ticked(self, worker: str, ticked: Ticked) -> None:
        """Receive a tick that was not skipped."""

    def relayed(self, worker: str, subscription: str, *, confirmed: int = 0, refused: int = 0) -> None:
        """Receive the numbers of events that became jobs or that a sink confirmed, and of refused deliveries."""


class Spans(Protocol):
    def attempts(self, worker: str, attempts: Sequence[Attempt]) -> AbstractContextManager[Endings]:
        """Surround one call of a handler. The yielded function takes the outcomes, in the order of the attempts."""
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
