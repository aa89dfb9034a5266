"""What in-process listeners are told: every transition of a job, and of the worker itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast.engine.observer import Observer
from holdfast.logs import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.engine.attempt import Attempt
    from holdfast.engine.observer import Spans
    from holdfast.engine.ticker import Ticked
    from holdfast.job import Handle
    from holdfast.new_job import NewJob
    from holdfast.store.claim import ClaimedJob
    from holdfast.store.reap import ReapedJob

    Listener: TypeAlias = "Callable[[Transition], None]"

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

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Transition:
    name: Name
    worker: str
    job: int | None = None
    kind: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class Transitions:
    """Tells the listeners, in the order they were added. One that raises, be it SystemExit, is logged and harms nobody.

    Observers among them are told of jobs by the batch, not one by one.
    """

    def __init__(self, worker: str, listeners: Sequence[Listener]) -> None:
        self.worker = worker
        self._listeners = tuple(listener for listener in listeners if not isinstance(listener, Observer))
        self._observers = tuple(listener for listener in listeners if isinstance(listener, Observer))
        self.spans: Spans | None = next((o.spans for o in self._observers if o.spans is not None), None)

    def __bool__(self) -> bool:
        """Whether somebody is told of each job."""
        return bool(self._listeners)

    @property
    def observed(self) -> bool:
        return bool(self._observers)

    def enqueued(self, jobs: Sequence[NewJob[Any]], handles: Sequence[Handle[Any]]) -> None:
        """Tell of jobs that were enqueued: the listeners of those with a handle, the observers of all of them."""
        if self._listeners:
            for job, handle in zip(jobs, handles, strict=False):
                if handle.created:
                    self.tell("job_enqueued", handle.id, job.kind, queue=job.envelope.queue)
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
            # Whatever a listener raises harms nobody, SystemExit neither.
            log.exception("a listener failed", extra={"transition": name})
