"""The answers to heartbeats are acted on: the control table, turns of reaping, another registration."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._engine.jobs.queue_control import QueueControl
    from holdfast._engine.jobs.reap import ReapSchedule
    from holdfast._engine.registration import Registration
    from holdfast._engine.session import Session
    from holdfast._engine.wake.listen import Waker
    from holdfast._store.worker import Beat


class HeartbeatAnswers:
    """Acts on the answers to the heartbeats of one database, in the event loop."""

    def __init__(
        self,
        session: Session,
        queue_control: QueueControl,
        reap_schedule: ReapSchedule,
        registration: Registration,
        waker: Waker,
    ) -> None:
        self._links = session.links
        self._queue_control = queue_control
        self._reap_schedule = reap_schedule
        self._registration = registration
        self._waker = waker
        self.interval = queue_control.heartbeat_interval
        """Seconds between two beats."""

    def beaten(self, beat: Beat) -> float:
        """Act on the answer to a beat, and return the seconds between two beats from now on."""
        if self._queue_control.left:
            return self.interval
        if beat.own:
            self._reap_schedule.learn(beat.place, beat.peers, beat.at)
        self._queue_control.apply(beat.queues)
        # A longer interval takes effect one beat later: leases from the shorter interval need one more renewal.
        before, self.interval = self.interval, self._queue_control.heartbeat_interval
        return min(before, self.interval)

    def disowned(self, worker: int) -> None:
        """Register again: the row with this id is gone or another worker's. Called at each beat until it is not."""
        self._registration.renew(worker, self._waker)

    def unanswered(self, beat_at: float) -> None:
        """Replace connections without an answer since `beat_at`, by the monotonic clock, when the last beat had one.

        A server that hangs closes none, and another may have its place. Called when beats begin to fail, and when one
        gets no answer.
        """
        self._links.doubt(self.interval)
        self._waker.doubt(beat_at)
