"""The heartbeat: it has its own thread and connection, so a handler that blocks the event loop cannot stop it."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._drivers import run_sync
from holdfast._engine.address import watched
from holdfast._engine.jobs.loop_watch import LOOK_SECONDS
from holdfast._engine.keeper import unwatched
from holdfast._engine.link import LOST, Outage, pin_names_of, sever
from holdfast._logs.log import Log
from holdfast._model.errors import AbortReason
from holdfast._store.inspect import is_read_only
from holdfast._store.lease import ClaimAnswer, Held, check_claims, renew_leases
from holdfast._store.worker import beat_worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast._engine.jobs.heartbeat_answers import HeartbeatAnswers
    from holdfast._engine.jobs.loop_watch import LoopWatch
    from holdfast._engine.jobs.slots import Slots
    from holdfast._engine.keeper import Keeper, Kept, LoopVitals, Turn
    from holdfast._engine.session import Session
    from holdfast._model.work import Lease
    from holdfast._store.worker import Beat


log = Log(__name__)

# The watch ticks twice per beat interval. After this many ticks without a beat, it interrupts the statement.
MISSED_TICKS = 4
# A worker is a peer of others until it has been silent for this many intervals: then no lease of its has expired yet.
LIVE_INTERVALS = 1.5
# The first beat, and the second after an outage, comes after at least this part of the interval.
EARLIEST = 0.2
# With something new to report, the next beat comes after this many seconds, and with anything to report after so many.
NEW_SECONDS, REPORT_SECONDS = 2.0, 5.0
# At the stop, a beat without an answer is interrupted after this many seconds.
END_SECONDS = 1.0
# Seconds between two checks of doubted claims: any database user can send any number of notifications.
CHECK_PAUSE = 0.1


class DoubtedClaims:
    """Claims that may be lost, by a notification. The heartbeat asks the database about them soon."""

    def __init__(self) -> None:
        self._claims: set[Held] = set()
        self._check_at = 0.0
        """When they were last checked or will be checked, by the event loop's clock."""
        self.woken = threading.Event()

    def __bool__(self) -> bool:
        return bool(self._claims)

    def add(self, claim: Held) -> None:
        """Check soon whether this claim is still valid. Call only in the event loop's thread."""
        self._claims.add(claim)
        loop = asyncio.get_running_loop()
        if self._check_at <= (now := loop.time()):
            self._check_at = max(now, self._check_at + CHECK_PAUSE)
            loop.call_at(self._check_at, self.woken.set)

    def take(self) -> list[Held]:
        """Return the claims, and forget them."""
        taken = list(self._claims)
        self._claims.difference_update(taken)
        return taken


class Heartbeat:
    """Renews the leases of all held jobs, also those not yet started, until their outcomes are written."""

    def __init__(
        self,
        session: Session,
        answers: HeartbeatAnswers,
        doubted: DoubtedClaims,
        watch: LoopWatch,
        slots: Slots,
    ) -> None:
        """Pass what the database answers to `answers`, always in the event loop."""
        self._session = session
        self._url = session.links.url
        self._row = session.row
        self._held = session.held
        self._answers = answers
        self.interval = answers.interval
        self._doubted = doubted
        self._loop_watch = watch
        self._slots = slots
        self._reports = False
        """Whether the last beat had something to report."""
        self._renew_at = 0.0
        """When the leases are to be renewed: a beat that only reports leaves them."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._ending = False
        self._woken = doubted.woken
        self._due = 0.0
        """When the next beat is due, by the monotonic clock."""
        self._conn: psycopg.Connection[Any] | None = None
        self._pooled = False
        self._apart: list[list[Held]] = []
        """The parts that were not renewed at the last beat, although the database answers."""
        self._refused: set[Held] = set()
        """Claims whose lease could not be renewed even alone."""
        self._kept: Kept | None = None
        self.beats = 0
        """How many beats were answered and acted on."""
        self.beat_at = time.monotonic()
        """When the last beat or renewal was answered, by the monotonic clock; at first, the time of creation."""

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
            self._due = self._renew_at = 0.0
            self._woken.set()

    def run(self, turn: Turn = unwatched) -> None:
        try:
            self._beats(turn)
        finally:
            self._close()

    def _beats(self, turn: Turn) -> None:
        outage = Outage(log, "heartbeat failed", worker=self._row.id)
        # A thread that replaces one that failed beats at once: no lease was renewed meanwhile.
        self._due = time.monotonic() + (self._spread() if self._kept is None or not self._kept.ends else 0.0)
        while not self._rest():
            turn(self.interval)
            try:
                if self._doubted:
                    self._check()
                if (begun := time.monotonic()) >= self._due:
                    self._beat()
                    # A beat may take a whole interval, when leases are renewed in parts: the next follows at once.
                    rest = min(self.interval, REPORT_SECONDS) if self._reports else self.interval
                    self._due = time.monotonic() + self._spread() if outage.failures else begun + rest
                    # Not after a check: a read-only server answers that, too.
                    outage.over()
            except Exception as exc:  # noqa: BLE001 - whatever stops the heartbeat, the leases expire
                if not outage.failures:
                    self._loop.call_soon_threadsafe(self._outage)
                self._due = time.monotonic() + outage.failed(exc)
                self._renew_at = 0.0
                self._close()
                if outage.seconds > self.interval:
                    self.abort_all()

    def _spread(self) -> float:
        """Return a part of the interval: workers that started or reconnected together beat at different times later."""
        return self.interval * random.uniform(EARLIEST, 1.0)  # noqa: S311 - it spreads load

    def _rest(self) -> bool:
        """Wait until the next beat or check, and watch the event loop. Return True when the thread should end."""
        while (left := self._due - time.monotonic()) > 0 and not self._woken.wait(min(left, LOOK_SECONDS)):
            self._loop_watch.check(self._loop, self._loop_thread, busy=bool(self._held))
            if time.monotonic() - self.beat_at > NEW_SECONDS and self._has_news():
                self._due = 0.0
        self._woken.clear()
        return self._ending

    def _has_news(self) -> bool:
        """Return whether something began that the last beat has not reported."""
        report = self._session.report
        runs = () if self._reports else report.long_runs(dict(self._held).values(), self._slots.is_full)
        return report.is_new or bool(runs)

    async def watch(self, turn: Turn = unwatched) -> None:
        """Detect, in the event loop, a beat that gets no answer.

        Time is counted in ticks, not in seconds: a suspended process that resumes has missed beats but no ticks, and
        its next beat brings the correct answer.
        """
        answered_at, missed = self.beat_at, 0
        while True:
            turn(self.interval)
            await asyncio.sleep(self.interval / 2)
            missed = missed + 1 if self.beat_at == answered_at else 0
            answered_at = self.beat_at
            if missed == MISSED_TICKS:
                self.interrupt()
                self._outage()
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
            self._pooled = not pin_names_of(self._conn)
        return self._conn

    def _check(self) -> None:
        """Stop the doubted claims that the database reports as cancelled or lost."""
        self._tell(_stops(run_sync(self._connected(), check_claims(self._row.id, self._doubted.take()))))

    def _beat(self) -> None:
        conn = self._connected()
        now = time.monotonic()
        held = dict(self._held)
        late = {
            key: AbortReason.timeout
            for key, attempt in held.items()
            if (deadline := attempt.deadline) is not None and now > deadline
        }
        renews = now >= self._renew_at
        renewable = {key: attempt.lease for key, attempt in held.items() if renews and key not in late}
        # This comes first: under another worker's id, nothing may be renewed.
        worker = self._row.id
        live_seconds = LIVE_INTERVALS * self.interval
        report = self._session.report.read(held.values(), self._slots.is_full)
        self._reports = report is not None
        counters, identity = self._session.counters, self._row.identity
        beat = run_sync(conn, beat_worker(worker, counters, identity, live_seconds=live_seconds, report=report))
        if not beat.own:
            self._tell(dict.fromkeys(held, AbortReason.not_found))
            self._loop.call_soon_threadsafe(self._answers.disowned, worker)
            renewable = {}
        answers = self._renew(worker, renewable) if renewable else {}
        if renews:
            self._renew_at = now + self.interval - EARLIEST * min(self.interval, REPORT_SECONDS)
        self._answered()
        self._loop.call_soon_threadsafe(self._beaten, beat)
        self._tell(late | _stops(answers))

    def _renew(self, worker: int, leases: Mapping[Held, Lease]) -> dict[Held, ClaimAnswer]:
        """Renew these leases. If that fails while the database answers, halve them until the culprit stands alone.

        This takes one interval at most. The parts that are left then stay apart, and are renewed at the next beat.
        """
        until = time.monotonic() + self.interval
        apart = {held for part in self._apart for held in part}
        together = [held for held in leases if held not in apart]
        # The parts that failed before come after, and those that were refused alone come last.
        before = [[held for held in part if held in leases] for part in self._apart]
        parts = deque(part for part in (together, *before) if part)
        culprits: list[list[Held]] = []
        answers: dict[Held, ClaimAnswer] = {}
        while parts and time.monotonic() < until:
            part = parts.popleft()
            try:
                with self._given_up_after(self.interval / (2 if part is together else 8)):
                    answers |= run_sync(self._connected(), renew_leases(worker, {held: leases[held] for held in part}))
                # The watch sees that leases are renewed, though the beat takes longer than usual.
                self._answered()
            except Exception as exc:
                self._close()
                if run_sync(self._connected(), is_read_only()):
                    raise
                if len(part) > 1:
                    # The other parts come first: most leases are renewed before the culprit is found.
                    parts += (part[: len(part) // 2], part[len(part) // 2 :])
                    continue
                culprits.append(part)
                if part[0] not in self._refused:
                    log.warning("a lease could not be renewed; the others are", extra={"id": part[0].id}, exc_info=exc)
        unreached = {held for part in parts for held in part}
        if new := len(unreached - apart):
            log.warning("leases were not reached in time: they are renewed in parts", extra={"leases": new})
        self._apart = [*parts, *culprits]
        self._refused = self._refused & unreached | {part[0] for part in culprits}
        return answers

    def _beaten(self, beat: Beat) -> None:
        self.beat_every(self._answers.beaten(beat))
        self.beats += 1

    def _outage(self) -> None:
        self._answers.unanswered(self.beat_at)

    def _answered(self) -> None:
        self.beat_at = time.monotonic()

    @contextmanager
    def _given_up_after(self, seconds: float) -> Iterator[None]:
        """Cancel a statement of the block that takes longer. Behind a pooler it is severed."""
        timer = threading.Timer(seconds, self._give_up, [self._connected()])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self, conn: psycopg.Connection[Any]) -> None:
        if self._pooled:
            sever(conn)
        else:
            with suppress(*LOST):
                conn.cancel_safe(timeout=END_SECONDS)

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
