"""The heartbeat: a thread and a connection of its own, so that no handler can starve it by blocking the event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast.abort import AbortReason
from holdfast.drivers import run_sync
from holdfast.engine.link import CONNECT, LOST, sever
from holdfast.engine.outage import Outage
from holdfast.store.lease import Held, renew_leases
from holdfast.store.worker import QueueControl, beat_worker, read_queues

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.engine.attempt import Attempt

log = logging.getLogger(__name__)

# A beat is due every second tick of the watch.
MISSED_TICKS = 4
# At the stop, a beat that gets no answer for this long is interrupted.
END_SECONDS = 1.0


class Heartbeat(threading.Thread):
    """Renews every lease held, prefetched jobs included, until their endings are written."""

    def __init__(  # noqa: PLR0913 - what a heartbeat touches
        self,
        url: str,
        *,
        worker: int,
        interval: float,
        held: Mapping[Held, Attempt],
        counters: Callable[[], Mapping[str, int]],
        on_queues: Callable[[list[QueueControl]], None],
    ) -> None:
        super().__init__(name=f"holdfast-heartbeat-{worker}", daemon=True)
        self._url = url
        self._worker = worker
        self.interval = interval
        self._held = held
        self._counters = counters
        self._on_queues = on_queues
        self._loop = asyncio.get_running_loop()
        self._ending = False
        self._woken = threading.Event()
        self._conn: psycopg.Connection[Any] | None = None
        self.beats = 0
        self.beat_at = time.monotonic()
        """When the last beat was answered, by the monotonic clock; at first, when there could be one."""

    def stop(self) -> None:
        """Ask the thread to end; it does within one statement."""
        self._ending = True
        self._woken.set()

    def end(self) -> None:
        """Wait until the thread has ended, whether or not it gets an answer."""
        self.join(END_SECONDS)
        if self.is_alive():
            self.interrupt()
            self.join()

    def beat_every(self, seconds: float) -> None:
        """Keep another pace; a quicker one begins at once."""
        quicker = seconds < self.interval
        self.interval = seconds
        if quicker:
            self._woken.set()

    def run(self) -> None:
        outage = Outage(log, "heartbeat failed", worker=self._worker)
        rest = self.interval
        while not self._rest(rest):
            try:
                self._beat()
                outage.over()
                rest = self.interval
            except Exception as exc:  # noqa: BLE001 - whatever stops a heartbeat, the leases run out
                rest = outage.failed(exc)
                self._close()
                if outage.seconds > self.interval:
                    self.abort_all()
        self._close()

    def _rest(self, seconds: float) -> bool:
        """Rest until the next beat; True: there will be none."""
        self._woken.wait(seconds)
        self._woken.clear()
        return self._ending

    async def watch(self) -> None:
        """Notice, in the loop, a beat that gets no answer at all.

        By our own ticks, not by the time: a process that was stopped and goes on has missed beats and not ticks, and
        its next beat brings the true answer.
        """
        beats, missed = self.beats, 0
        while True:
            await asyncio.sleep(self.interval / 2)
            missed = missed + 1 if self.beats == beats else 0
            beats = self.beats
            if missed == MISSED_TICKS:
                self.interrupt()
                missed = 0

    def interrupt(self) -> None:
        """End a statement that never answers, from another thread; what is held is aborted."""
        self.abort_all()
        if (conn := self._conn) is not None:
            sever(conn)

    def abort_all(self) -> None:
        self._tell(dict.fromkeys(dict(self._held), AbortReason.error))

    def _beat(self) -> None:
        if self._conn is None:
            self._conn = psycopg.connect(self._url, autocommit=True, prepare_threshold=None, **CONNECT)
        now = time.monotonic()
        held = dict(self._held)
        late = {
            key: AbortReason.timeout for key, attempt in held.items() if attempt.deadline and now > attempt.deadline
        }
        renewable = {key: attempt.lease for key, attempt in held.items() if key not in late}
        answers = run_sync(self._conn, renew_leases(self._worker, renewable)) if renewable else {}
        run_sync(self._conn, beat_worker(self._worker, self._counters()))
        queues = run_sync(self._conn, read_queues())
        self.beats += 1
        self.beat_at = time.monotonic()
        self._loop.call_soon_threadsafe(self._on_queues, queues)
        self._tell(late | {key: answer for key, answer in answers.items() if answer != "busy"})

    def _tell(self, reasons: dict[Held, AbortReason]) -> None:
        """Fire the signals here, for threads that look at them, and let the loop cancel what it runs."""
        for key, reason in reasons.items():
            attempt = self._held.get(key)
            if attempt is None or (attempt.completed and reason is AbortReason.already_completed):
                continue
            if attempt.signal.abort(reason):
                self._loop.call_soon_threadsafe(attempt.cancel)

    def _close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            try:
                conn.close()
            except LOST:
                log.debug("the heartbeat's connection was gone already")
