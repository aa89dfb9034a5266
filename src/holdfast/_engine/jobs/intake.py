"""Intake: claimed jobs become attempts, which are held, and given to the dispatcher."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from holdfast._engine.attempt import Attempt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast._engine.jobs.complete import Completer
    from holdfast._engine.jobs.dispatch import Dispatcher
    from holdfast._engine.jobs.held_jobs import HeldJobs
    from holdfast._engine.jobs.ready import ReadyJobs
    from holdfast._engine.session import Session
    from holdfast._model.job import Blocker
    from holdfast._model.kind import Kind
    from holdfast._store.claim import ClaimedJob


class Intake:
    """Takes in the claimed jobs of one database, and gives back those that do not start."""

    def __init__(  # noqa: PLR0913 - what a claimed job passes through
        self,
        session: Session,
        kinds: Mapping[str, Kind[..., Any]],
        *,
        dispatcher: Dispatcher,
        held_jobs: HeldJobs,
        ready: ReadyJobs,
        completer: Completer,
    ) -> None:
        self._session = session
        self._kinds = kinds
        self._dispatcher = dispatcher
        self._held_jobs = held_jobs
        self._ready = ready
        self._completer = completer

    def hold(self, jobs: Sequence[ClaimedJob], blockers: Mapping[int, Sequence[Blocker]]) -> None:
        """Hold claimed jobs, and start those that have a slot. `blockers`: the ended chains they waited for, by id."""
        self._start(jobs, blockers, give_back=self._session.stopping or self._dispatcher.slots.closed)

    def hold_apart(self, jobs: Sequence[ClaimedJob], blockers: Mapping[int, Sequence[Blocker]]) -> None:
        """Hold and start claimed jobs, though the slots are closed for all others."""
        self._start(jobs, blockers, give_back=self._session.stopping)

    def _start(self, jobs: Sequence[ClaimedJob], blockers: Mapping[int, Sequence[Blocker]], *, give_back: bool) -> None:
        attempts = []
        control = self._session.control
        for job in sorted(jobs, key=_URGENCY):
            waited_for = tuple(blockers.get(job.id, ()))
            attempts.append(Attempt(job, self._kinds[job.kind], control.lease(job), self._completer, waited_for))
        self._held_jobs.add(attempts)
        if give_back or not control.paused.isdisjoint(job.queue for job in jobs):
            # The worker was stopped or the queue paused while the claim was under way.
            left = [attempt for attempt in attempts if give_back or attempt.claimed.queue in control.paused]
            self._ready.give_back(left)
            attempts = [attempt for attempt in attempts if attempt not in left]
        self._dispatcher.hold(self._ready, attempts)

    def give_back_waiting(self) -> None:
        """Give back jobs that have not started. Their attempts do not count."""
        self._dispatcher.give_back(self._ready)

    def give_up_running(self) -> None:
        """Write the outcomes of aborted attempts whose handlers still run: these handlers are not waited for."""
        for attempt in list(self._session.held.values()):
            if attempt.has_started and not attempt.over and attempt.signal.aborted:
                attempt.over = True
                self._ready.ended(attempt, self._dispatcher.handlers.aborted(attempt))


_URGENCY = attrgetter("priority", "available_at", "id")
