"""What in-process listeners are told: every transition of a job, and of the worker itself."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.store.reap import ReapedJob

    Listener: TypeAlias = "Callable[[Transition], None]"

Name: TypeAlias = Literal[
    "worker_started",
    "worker_stopping",
    "worker_stopped",
    "job_claimed",
    "job_completed",
    "job_retried",
    "job_rescheduled",
    "job_released",
    "job_failed",
    "job_cancelled",
    "job_reaped",
    "job_lost",
    "runner_already_running",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Transition:
    name: Name
    worker: str
    job: int | None = None
    kind: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class Transitions:
    """Tells the listeners, in the order they were added. One that raises is logged and harms nobody."""

    def __init__(self, worker: str, listeners: Sequence[Listener]) -> None:
        self._worker = worker
        self._listeners = tuple(listeners)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def reaped(self, jobs: Sequence[ReapedJob]) -> None:
        for job in jobs if self._listeners else ():
            self.tell("job_reaped", job.id, job.kind, stale=job.stale, became=job.answer)

    def tell(self, name: Name, job: int | None = None, kind: str | None = None, **details: object) -> None:
        if not self._listeners:
            return
        transition = Transition(name, self._worker, job, kind, details)
        for listener in self._listeners:
            try:
                listener(transition)
            except Exception:
                log.exception("a listener failed", extra={"transition": name})
