"""The heartbeat: a thread and a connection of its own, so that no handler can starve it by blocking the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, assert_never

import psycopg

from holdfast.abort import AbortReason
from holdfast.drivers import run_sync
from holdfast.engine.keeper import unwatched
from holdfast.engine.link import CONNECT, LOST, pin_names_of, sever
from holdfast.engine.outage import Outage
from holdfast.logs import Log
from holdfast.store.answer import Answer
from holdfast.store.lease import Held, check_claims, renew_leases
from holdfast.store.worker import QueueControl, beat_worker, read_queues

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from holdfast.engine.attempt import Attempt
    from holdfast.engine.keeper import Keeper, Kept, Turn

log = Log(__name__)

# A beat is due every second tick of the watch.
MISSED_TICKS = 4
# At the stop, a beat that gets no answer for this long is interrupted.
END_SECONDS = 1.0
# Seconds between two checks of doubted claims: anybody who may log in can send any number of notifications.
CHECK_PAUSE = 0.1


class Heartbeat:
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
        identity: UUID | None = None,
        on_disowned: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`on_disowned(worker)`: the row with this id is gone, or another's. Called at each beat while that is so."""
        self._url = url
        self.worker = worker
        self.interval = interval
        self._held = held
        self._counters = counters
        self._on_queues = on_queues
        self._identity = identity
        self._on_disowned = on_disowned
        self._loop = asyncio.get_running_loop()
        self._ending = False
        self._woken = threading.Event()
        self._due = 0.0
        """When the next beat is due, by the monotonic clock."""
        self._doubted: set[Held] = set()
        self._check_at = 0.0
        """When doubted claims were last checked, or will be, by the loop's clock."""
        self._conn: psycopg.Connection[Any] | None = None
        self._kept: Kept | None = None
        self.beats = 0
        self.beat_at = time.monotonic()
        """When the last beat was answered, by the monotonic clock; at first, when there could be one."""

    def start(self, keeper: Keeper) -> None:
        """Beat in a thread of its own."""
        self._kept = keeper.start_thread("heartbeat", self.run)
        self._kept.wake = self._woken.set

    def stop(self) -> None:
        """Ask the thread to end; it does within one statement."""
        self._ending = True
        if self._kept is not None:
            self._kept.stop()
        self._woken.set()

    def end(self) -> None:
        """Wait until the thread has ended, whether or not it gets an answer; one that is connecting is left alone."""
        if self._kept is None or (thread := self._kept.thread) is None:
            return
        thread.join(END_SECONDS)
        if thread.is_alive():
            self.interrupt()
            thread.join(END_SECONDS)

    def beat_every(self, seconds: float) -> None:
        """Keep another pace; a quicker one begins at once."""
        quicker = seconds < self.interval
        self.interval = seconds
        if quicker:
            self._due = 0.0
            self._woken.set()

    def doubt(self, held: Held) -> None:
        """Ask the database soon whether this claim of ours still holds. Only in the loop's own thread."""
        self._doubted.add(held)
        now = self._loop.time()
        if self._check_at <= now:
            self._check_at = max(now, self._check_at + CHECK_PAUSE)
            self._loop.call_at(self._check_at, self._woken.set)

    def run(self, turn: Turn = unwatched) -> None:
        try:
            self._beats(turn)
        finally:
            self._close()

    def _beats(self, turn: Turn) -> None:
        outage = Outage(log, "heartbeat failed", worker=self.worker)
        # A thread that takes the place of one that ended does not wait: the leases have not been renewed meanwhile.
        self._due = time.monotonic() + (self.interval if self._kept is None or not self._kept.ends else 0.0)
        while not self._rest():
            turn(self.interval)
            try:
                if self._doubted:
                    self._check()
                if time.monotonic() >= self._due:
                    self._beat()
                    self._due = time.monotonic() + self.interval
                    # Not after a check: a server that cannot be written to answers that, too.
                    outage.over()
            except Exception as exc:  # noqa: BLE001 - whatever stops a heartbeat, the leases run out
                self._due = time.monotonic() + outage.failed(exc)
                self._close()
                if outage.seconds > self.interval:
                    self.abort_all()

    def _rest(self) -> bool:
        """Rest until the next beat, or until there is something to check; True: there will be none."""
        self._woken.wait(max(0.0, self._due - time.monotonic()))
        self._woken.clear()
        return self._ending

    async def watch(self, turn: Turn = unwatched) -> None:
        """Notice, in the loop, a beat that gets no answer at all.

        By our own ticks, not by the time: a process that was stopped and goes on has missed beats and not ticks, and
        its next beat brings the true answer.
        """
        beats, missed = self.beats, 0
        while True:
            turn(self.interval)
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

    def _connected(self) -> psycopg.Connection[Any]:
        if self._conn is None:
            self._conn = psycopg.connect(self._url, autocommit=True, prepare_threshold=None, **CONNECT)
            pin_names_of(self._conn)
        return self._conn

    def _check(self) -> None:
        """Stop those of the doubted claims that the database says are called off or lost."""
        doubted = list(self._doubted)
        self._doubted.difference_update(doubted)
        self._tell(_stops(run_sync(self._connected(), check_claims(self.worker, doubted))))

    def _beat(self) -> None:
        conn = self._connected()
        now = time.monotonic()
        held = dict(self._held)
        late = {
            key: AbortReason.timeout
            for key, attempt in held.items()
            if (deadline := attempt.deadline) is not None and now > deadline
        }
        renewable = {key: attempt.lease for key, attempt in held.items() if key not in late}
        # First: under the id of another, nothing may be renewed.
        worker = self.worker
        if not run_sync(conn, beat_worker(worker, self._counters(), self._identity)):
            self._tell(dict.fromkeys(held, AbortReason.not_found))
            self._loop.call_soon_threadsafe(self._on_disowned, worker)
            renewable = {}
        answers = run_sync(conn, renew_leases(worker, renewable)) if renewable else {}
        queues = run_sync(conn, read_queues())
        self.beats += 1
        self.beat_at = time.monotonic()
        self._loop.call_soon_threadsafe(self._on_queues, queues)
        self._tell(late | _stops(answers))

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


def _stops(answers: Mapping[Held, Answer]) -> dict[Held, AbortReason]:
    return {key: reason for key, answer in answers.items() if (reason := stop_reason(answer)) is not None}


def stop_reason(answer: Answer) -> AbortReason | None:
    """Return why a handler must stop, by what the database answers about its claim; None when it may go on."""
    match answer:
        case Answer.busy:
            return None
        case Answer.cancelled:
            return AbortReason.cancelled
        case Answer.already_completed:
            return AbortReason.already_completed
        case Answer.not_found:
            return AbortReason.not_found
        case Answer.taken_by_another_worker | Answer.completed | Answer.failed | Answer.pending:
            # The last three are no answers to a renewal: whatever the job became, it is not ours.
            return AbortReason.taken_by_another_worker
        case never:
            assert_never(never)
