"""Wake-ups: which loops look for work after a notification, and after the reaper found lost jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._engine.wake.listen import EVENTS, WAITERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._engine.jobs.claim import Claimer
    from holdfast._engine.jobs.heartbeat import DoubtedClaims
    from holdfast._engine.jobs.held_jobs import HeldJobs
    from holdfast._engine.jobs.isolation import Isolation
    from holdfast._engine.jobs.reap import ReapSchedule
    from holdfast._engine.session import Session
    from holdfast._store.lease import DeadWorker, Held, ReapedJob


class Wakeups:
    """Wakes the loops of one database: the waker and the reaper pass on what they learn."""

    def __init__(  # noqa: PLR0913 - the loops to wake
        self,
        session: Session,
        *,
        held_jobs: HeldJobs,
        claimer: Claimer,
        isolation: Isolation,
        reap_schedule: ReapSchedule,
        doubted: DoubtedClaims,
    ) -> None:
        self._session = session
        self._held_jobs = held_jobs
        self._claimer = claimer
        self._isolation = isolation
        self._reap_schedule = reap_schedule
        self._doubted = doubted

    def woken(self, text: str) -> None:
        """Wake the loops that a notification is for. Its text names a job or a queue, or is empty for all."""
        if text == WAITERS:
            self._reap_schedule.wake()
            return
        if text in {"", EVENTS}:
            self._session.published.wake()
        if text != EVENTS and not self._claimer.wake(text):
            self._isolation.wake()

    def lost(self, claim: Held) -> None:
        """Have the heartbeat check a claim that may have been lost or cancelled."""
        if claim in self._session.held:
            self._doubted.add(claim)

    def reaped(self, jobs: Sequence[ReapedJob]) -> None:
        """Report and count the jobs of a pass of the reaper, and wake the loops that may claim them."""
        self._held_jobs.reaped(jobs)
        if jobs:
            self.woken("")

    def died(self, lost: DeadWorker) -> None:
        """Report another worker that died."""
        self._held_jobs.died(lost)
