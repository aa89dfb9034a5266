"""The heartbeat: it has its own thread and connection, so a handler that blocks the event loop cannot stop it."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._drivers import run_sync
from holdfast._engine.address import watched
from holdfast._engine.keeper import unwatched
from holdfast._engine.link import LOST, Outage, pin_names_of, sever
from holdfast._logs.log import Log
from holdfast._model.errors import AbortReason
from holdfast._store.lease import ClaimAnswer, Held, check_claims, renew_leases
from holdfast._store.worker import beat_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.keeper import Keeper, Kept, LoopVitals, Turn
    from holdfast._store.worker import Beat


log = Log(__name__)

# The watch ticks twice per beat interval. After this many ticks without a beat, it interrupts the statement.
MISSED_TICKS = 4
# A worker is a peer of others until it has been silent for this many intervals: then no lease of its has expired yet.
LIVE_INTERVALS = 1.5
# The first beat, and the second after an outage, comes after at least this part of the interval.
EARLIEST = 0.2
# At the stop, a beat without an answer is interrupted after this many seconds.
END_SECONDS = 1.0
# Seconds between two checks of doubted claims: any database user can send any number of notifications.
CHECK_PAUSE = 0.1


class Heartbeat:
    """Renews the leases of all held jobs, also those not yet started, until their outcomes are written."""

    def __init__(  # noqa: PLR0913 - everything that a heartbeat uses
        self,
        url: str,
        *,
        worker: int,
        interval: float,
        held: Mapping[Held, Attempt],
        counters: Callable[[], Mapping[str, int]],
        on_beat: Callable[[Beat], None],
        identity: UUID | None = None,
        on_disowned: Callable[[int], None] = lambda _: None,
        on_outage: Callable[[], None] = lambda: None,
    ) -> None:
        """All of these are called in the event loop. `on_beat(beat)`: with the answer to each beat.

        `on_disowned(worker)`: at each beat while the row with this id is gone or another worker's. `on_outage()`: when
        beats begin to fail, and when one gets no answer.
        """
        self._url = url
        self.worker = worker
        self.interval = interval
        self._held = held
        self._counters = counters
        self._on_beat = on_beat
        self._identity = identity
        self._on_disowned = on_disowned
        self._on_outage = on_outage
        self._loop = asyncio.get_running_loop()
        self._ending = False
        self._woken = threading.Event()
        self._due = 0.0
        """When the next beat is due, by the monotonic clock."""
        self._doubted: set[Held] = set()
        self._check_at = 0.0
        """When doubted claims were last checked or will be checked, by the event loop's clock."""
        self._conn: psycopg.Connection[Any] | None = None
        self._kept: Kept | None = None
        self.beats = 0
        self.beat_at = time.monotonic()
        """When the last beat was answered, by the monotonic clock; at first, the time of creation."""

    def start(self, keeper: Keeper) -> None:
        """Start the thread."""
        self._kept = keeper.start_thread("heartbeat", self.run)
        self._kept.wake = self._woken.set

    def stop(self) -> None:
        """Ask the thread to end. It ends after the current statement."""
        self._ending = True
        if self._kept is not None:
            self._kept.stop()
        self._woken.set()

    def end(self) -> None:
        """Wait until the thread has ended, and cut off a statement without an answer, but not a pending connect."""
        if self._kept is None or (thread := self._kept.thread) is None:
            return
        thread.join(END_SECONDS)
        if thread.is_alive():
            self.interrupt()
            thread.join(END_SECONDS)

    def beat_every(self, seconds: float) -> None:
        """Change the interval. A shorter one takes effect at once."""
        quicker = seconds < self.interval
        self.interval = seconds
        if quicker:
            self._due = 0.0
            self._woken.set()

    def doubt(self, held: Held) -> None:
        """Check soon with the database whether this claim is still valid. Call only in the event loop's thread."""
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
        # A thread that replaces one that failed beats at once: no lease was renewed meanwhile.
        self._due = time.monotonic() + (self._spread() if self._kept is None or not self._kept.ends else 0.0)
        while not self._rest():
            turn(self.interval)
            try:
                if self._doubted:
                    self._check()
                if time.monotonic() >= self._due:
                    self._beat()
                    self._due = time.monotonic() + (self._spread() if outage.failures else self.interval)
                    # Not after a check: a read-only server answers that, too.
                    outage.over()
            except Exception as exc:  # noqa: BLE001 - whatever stops the heartbeat, the leases expire
                if not outage.failures:
                    self._loop.call_soon_threadsafe(self._on_outage)
                self._due = time.monotonic() + outage.failed(exc)
                self._close()
                if outage.seconds > self.interval:
                    self.abort_all()

    def _spread(self) -> float:
        """Return a part of the interval: workers that started or reconnected together beat at different times later."""
        return self.interval * random.uniform(EARLIEST, 1.0)  # noqa: S311 - it spreads load

    def _rest(self) -> bool:
        """Wait until the next beat or check. Return True when the thread should end."""
        self._woken.wait(max(0.0, self._due - time.monotonic()))
        self._woken.clear()
        return self._ending

    async def watch(self, turn: Turn = unwatched) -> None:
        """Detect, in the event loop, a beat that gets no answer.

        Time is counted in ticks, not in seconds: a suspended process that resumes has missed beats but no ticks, and
        its next beat brings the correct answer.
        """
        beats, missed = self.beats, 0
        while True:
            turn(self.interval)
            await asyncio.sleep(self.interval / 2)
            missed = missed + 1 if self.beats == beats else 0
            beats = self.beats
            if missed == MISSED_TICKS:
                self.interrupt()
                self._on_outage()
                missed = 0

    def interrupt(self) -> None:
        """Cut off a statement that gets no answer, from another thread, and abort all held jobs."""
        self.abort_all()
        if (conn := self._conn) is not None:
            sever(conn)

    def abort_all(self) -> None:
        self._tell(dict.fromkeys(dict(self._held), AbortReason.error))

    def _connected(self) -> psycopg.Connection[Any]:
        if self._conn is None:
            params = watched(conninfo_to_dict(self._url))
            self._conn = psycopg.connect(make_conninfo(**params), autocommit=True, prepare_threshold=None)
            pin_names_of(self._conn)
        return self._conn

    def _check(self) -> None:
        """Stop the doubted claims that the database reports as cancelled or lost."""
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
        # This comes first: under another worker's id, nothing may be renewed.
        worker = self.worker
        live_seconds = LIVE_INTERVALS * self.interval
        beat = run_sync(conn, beat_worker(worker, self._counters(), self._identity, live_seconds=live_seconds))
        if not beat.own:
            self._tell(dict.fromkeys(held, AbortReason.not_found))
            self._loop.call_soon_threadsafe(self._on_disowned, worker)
            renewable = {}
        answers = run_sync(conn, renew_leases(worker, renewable)) if renewable else {}
        self.beats += 1
        self.beat_at = time.monotonic()
        self._loop.call_soon_threadsafe(self._on_beat, beat)
        self._tell(late | _stops(answers))

    def _tell(self, reasons: dict[Held, AbortReason]) -> None:
        """Fire the signals here, for threads that poll them, and let the event loop cancel its tasks."""
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


def _stops(answers: Mapping[Held, ClaimAnswer]) -> dict[Held, AbortReason]:
    return {key: reason for key, answer in answers.items() if (reason := stop_reason(answer)) is not None}


def stop_reason(answer: ClaimAnswer) -> AbortReason | None:
    """Return why a handler must stop, given the database's answer about its claim. None: it may continue."""
    match answer:
        case ClaimAnswer.busy:
            return None
        case ClaimAnswer.cancelled:
            return AbortReason.cancelled
        case ClaimAnswer.already_completed:
            return AbortReason.already_completed
        case ClaimAnswer.not_found:
            return AbortReason.not_found
        case ClaimAnswer.taken_by_another_worker | ClaimAnswer.completed | ClaimAnswer.failed | ClaimAnswer.pending:
            # The last three never answer a renewal. Whatever the job became, its claim is lost.
            return AbortReason.taken_by_another_worker
        case never:
            assert_never(never)


class Vitals(NamedTuple):
    """The state of one database's pipeline. Ages are in seconds; None: the database has never answered."""

    database: str
    beat: float | None = None
    """Seconds since the last answered heartbeat."""
    reap: float | None = None
    """Seconds since the last pass of the reaper, less the turns of other workers."""
    unwritten: float = 0.0
    """Seconds that outcomes have waited while none was written; 0 if none waits."""
    loops: tuple[LoopVitals, ...] = ()
    """The loops and threads that serve it."""


def database_of(url: str) -> str:
    """Return only the database name: the URL may contain a password."""
    try:
        return str(conninfo_to_dict(url).get("dbname") or "")
    except psycopg.ProgrammingError:
        return ""
