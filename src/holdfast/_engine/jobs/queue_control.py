"""The control table: paused queues, their concurrency, rates and leases are obeyed after each heartbeat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._logs.log import Log
from holdfast._model.work import Lease

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast._engine.jobs.dispatch import Dispatcher
    from holdfast._engine.jobs.ready import ReadyJobs
    from holdfast._engine.session import Session
    from holdfast._model.settings import Settings
    from holdfast._store.worker import QueueControlRow

log = Log(__name__)


class QueueControl:
    """Applies the control table of one database to its queues."""

    def __init__(self, session: Session, settings: Settings, dispatcher: Dispatcher, ready: ReadyJobs) -> None:
        self._session = session
        self._settings = settings
        self._dispatcher = dispatcher
        self._ready = ready
        self.left = False
        """Whether the database is no longer served: then an answer to the last heartbeat changes nothing."""

    def apply(self, queues: Sequence[QueueControlRow]) -> None:
        """Apply these rows, also to jobs that are held."""
        control = self._session.control
        control.paused = frozenset(queue.name for queue in queues if queue.paused)
        slots = self._dispatcher.slots
        leases = {q.name: Lease(q.lease_ms / 1000) for q in queues if q.lease_ms and q.name in slots.queues}
        if leases != control.queue_leases:
            self._use_leases(leases)
        tighter = slots.control(
            {q.name: q.concurrency for q in queues if q.concurrency is not None},
            {q.name: q.rate for q in queues if q.rate is not None},
            of=self,
        )
        self._dispatcher.give_back(self._ready, control.paused)
        self._dispatcher.give_back_of(tighter)
        self._dispatcher.dispatch()

    def _use_leases(self, leases: Mapping[str, Lease]) -> None:
        control = self._session.control
        control.queue_leases = leases
        for attempt in self._session.held.values():
            attempt.lease = control.lease(attempt.claimed)
        for name, lease in leases.items():
            for problem in self._settings.too_long_for(f"queue {name}", lease.duration):
                log.warning("settings do not go with the lease of a queue: %s", problem)

    @property
    def heartbeat_interval(self) -> float:
        """The setting, or a quarter of the shortest lease in use if that is less: it must stay below a third."""
        return min(self._settings.heartbeat.total_seconds(), self._session.control.shortest / 4)

    def leave(self) -> None:
        """Give up its part of the slots: this database is no longer served."""
        self.left = True
        self._dispatcher.slots.uncontrol(self)
        self._dispatcher.leave(self._ready)
