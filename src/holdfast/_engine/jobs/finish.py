"""Finishing: outcomes are written in batches, and the next batch collects meanwhile. A single one is not delayed.

A batch that cannot be written is halved on a connection of its own, until the culprit stands alone. The others are
written meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg

from holdfast._engine.jobs.refusal import dead_letter, is_refusal, may_be_refusal, plainer
from holdfast._engine.keeper import unwatched
from holdfast._engine.link import Outage
from holdfast._logs.failure import Failure, traceback_of
from holdfast._logs.log import Log
from holdfast._model.errors import AbortReason
from holdfast._model.outcome import Completed, Fail, Failed, Retried
from holdfast._store.finish import Answers, complete_plain, finish_jobs, is_plain
from holdfast._store.lease import ClaimAnswer, renew_leases

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.jobs.demand import Demand
    from holdfast._engine.jobs.held_jobs import HeldJobs
    from holdfast._engine.keeper import Turn
    from holdfast._engine.link import Link
    from holdfast._engine.session import Session
    from holdfast._model.outcome import Outcome
    from holdfast._store.lease import Held

MOST_AT_ONCE = 1000
ENOUGH = 250
GATHER_TURNS = 2
# A batch that takes longer than this many seconds is cancelled and halved. An outcome alone gets twice as long with
# each attempt, up to half of a lease: meanwhile its row is locked, and the heartbeat cannot renew it.
BATCH_SECONDS = 2.0
# Seconds until an outcome that could not be written is written again; doubled with each attempt.
PAUSE = 0.05
LONGEST_PAUSE = 2.0
# However many outcomes could not be written, this many seconds pass between two of them.
SPACING = 0.01
# An outcome that cannot be written alone is given up after as many seconds as a lease has, if one of its sort was
# written meanwhile. If none was, the database is the cause: then after this many leases.
MOST_LEASES = 60
# An outcome that was blocked for this many seconds is logged.
LOG_AFTER = 10.0
LOST_CLAIM = frozenset({AbortReason.taken_by_another_worker, AbortReason.already_completed, AbortReason.not_found})

log = Log(__name__)


@dataclass(slots=True)
class HeldUp:
    """An outcome that could not be written: since when, how often it was tried, and whether it was logged."""

    since: float = field(default_factory=time.monotonic)
    tries: int = 0
    failures: int = 0
    """How often it failed alone. 0: another transaction blocks it."""
    logged: bool = False

    def pause(self) -> float:
        """Return how many seconds to wait before the next try."""
        self.tries += 1
        return min(PAUSE * 2.0 ** min(self.tries - 1, 10), LONGEST_PAUSE)


class Finisher:
    """Writes the outcomes of one worker to one database, and gives none up while its claim may still be valid.

    An outcome that an open transaction blocks is retried separately, while its lease is renewed. One that the database
    or the driver does not take becomes a dead letter.
    """

    def __init__(
        self,
        session: Session,
        held_jobs: HeldJobs,
        demand: Demand,
        *,
        tracebacks: bool = True,
    ) -> None:
        """`tracebacks`: store those of failed attempts. Defaults to True."""
        self._links = session.links
        self._row = session.row
        self._held_jobs = held_jobs
        self._demand = demand
        self._tracebacks = tracebacks
        self._outage = Outage(log, "finish_jobs failed, trying again")
        self._ended: list[Attempt] = []
        self._again: deque[Sequence[Attempt]] = deque()
        self._parts: deque[Sequence[Attempt]] = deque()
        """Parts of batches that could not be written, and outcomes that could not be written alone."""
        self._parted = asyncio.Event()
        self._held_up: dict[Held, HeldUp] = {}
        self._sorts: dict[type[object], float] = {}
        """When an outcome of each sort was last written while others were held up, by the monotonic clock."""
        self._batch: Sequence[Attempt] = ()
        """The batch being written. If this loop ends before the answer, its next run writes the batch again."""
        self._open = 0
        self._settled_at = 0.0
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, attempt: Attempt) -> None:
        """Write the outcome of this attempt."""
        if self._open == len(self._held_up):
            self._settled_at = time.monotonic()
        self._open += 1
        if self._open > MOST_AT_ONCE:
            self._demand.full = True
        self._idle.clear()
        self._ended.append(attempt)
        self._wake.set()

    @property
    def unwritten(self) -> float:
        """For how many seconds outcomes have waited while none was written; 0 if none waits. Safe from any thread.

        Outcomes that another transaction blocks are not counted.
        """
        return time.monotonic() - self._settled_at if self._open > len(self._held_up) else 0.0

    async def flushed(self) -> None:
        """Return when every outcome that was added has been answered."""
        await self._idle.wait()

    async def run(self, turn: Turn = unwatched) -> None:
        left, self._batch = self._batch, ()
        self._ended += left
        self._wake.set()
        while True:
            turn(math.inf)
            await self._wake.wait()
            self._wake.clear()
            while self._ended or self._again:
                turn()
                if self._ended:
                    await self._write_taken(await self._gathered())
                if self._again:
                    await self._write_taken(self._again.popleft())

    async def run_apart(self, turn: Turn = unwatched) -> None:
        """Write what could not be written with others. The connection is open only meanwhile."""
        self._parted.set()
        while True:
            turn(math.inf)
            await self._parted.wait()
            self._parted.clear()
            while self._parts:
                turn()
                # If this loop ends before the answer, its next run writes the same part again.
                await self._write(self._parts[0], self._links.apart)
                self._parts.popleft()
            if not any(held_up.failures for held_up in self._held_up.values()):
                await self._links.apart.close()

    async def _write_taken(self, batch: Sequence[Attempt]) -> None:
        self._batch = batch
        await self._write(batch, self._links.finish)
        self._batch = ()

    async def _gathered(self) -> Sequence[Attempt]:
        # With fast handlers, more jobs end in each iteration of the loop; a single outcome waits for two empty ones.
        for _ in range(GATHER_TURNS):
            if len(self._ended) >= ENOUGH:
                break
            await asyncio.sleep(0)
        batch = self._ended[:MOST_AT_ONCE]
        del self._ended[: len(batch)]
        return batch

    async def _write(self, batch: Sequence[Attempt], link: Link) -> None:
        try:
            answers = await self._answers(batch, link)
        except Exception as exc:  # noqa: BLE001 - the database answers, so one of the outcomes may be the cause
            if not is_refusal(exc):
                await self._renew(batch, link)
            self._write_apart(batch, exc)
            return
        if ClaimAnswer.busy in answers.values():
            # The claim is still valid, but another transaction locks a row that the outcome needs.
            busy = [
                attempt
                for attempt in batch
                if answers.get(attempt.held) is ClaimAnswer.busy and attempt.signal.reason not in LOST_CLAIM
            ]
            self._ask_again(busy)
            self._settle(busy)
            batch = [attempt for attempt in batch if attempt not in busy]
        if self._held_up:
            now = time.monotonic()
            for attempt in batch:
                self._held_up.pop(attempt.held, None)
                self._sorts[type(attempt.outcome)] = now
        self._close(batch, lambda: self._written(batch, answers))

    def _written(self, batch: Sequence[Attempt], answers: Answers) -> None:
        try:
            self._held_jobs.written(batch, answers, answers.next_ids)
        finally:
            self._demand.grew()

    async def _renew(self, batch: Sequence[Attempt], link: Link) -> None:
        """Renew their leases, now that the statement that locked their rows has ended."""
        leases = {attempt.held: attempt.lease for attempt in batch}
        with suppress(Exception):  # The heartbeat tries again, and logs what stops it.
            await link.run(renew_leases(self._row.id, leases), seconds=BATCH_SECONDS)

    def _write_apart(self, batch: Sequence[Attempt], exc: Exception) -> None:
        """Halve the batch, and write its parts on another connection. Decide about an outcome that stands alone."""
        self._settle(batch)
        if len(batch) > 1:
            middle = len(batch) // 2
            self._add_part(batch[:middle])
            self._add_part(batch[middle:])
            return
        (attempt,) = batch
        held_up = self._held_up.setdefault(attempt.held, HeldUp())
        if not held_up.failures:
            held_up.since = time.monotonic()
        held_up.failures += 1
        lost, refused = attempt.signal.reason in LOST_CLAIM, is_refusal(exc)
        if not lost and not refused and not self._is_hopeless(attempt, held_up, exc):
            if held_up.failures == 1:
                log.warning(
                    "an ending could not be written alone, trying again; the others are written meanwhile",
                    extra={"id": attempt.claimed.id, "kind": attempt.claimed.kind, "error": type(exc).__name__},
                )
            pause = max(held_up.pause(), SPACING * len(self._held_up))
            asyncio.get_running_loop().call_later(pause, self._add_part, batch)
            return
        del self._held_up[attempt.held]
        # Its texts may be the cause of a refusal, and never of anything else.
        instead: Outcome | None
        if refused and attempt.log is not None:
            instead, attempt.kept = attempt.outcome, None
        else:
            instead = (plainer(attempt.outcome) if refused else None) or dead_letter(attempt.outcome, exc)
        if instead is not None and not lost:
            attempt.outcome = instead
            self._add_part(batch)
            return
        log.error(
            "an ending was refused, and its job is left to the reaper", extra={"id": attempt.claimed.id}, exc_info=exc
        )
        self._close(batch, lambda: self._held_jobs.refused(attempt))

    def _is_hopeless(self, attempt: Attempt, held_up: HeldUp, exc: Exception) -> bool:
        """Return whether to give up an outcome that fails alone for a reason that may pass, such as a timeout."""
        seconds, lease = time.monotonic() - held_up.since, self._links.timeout
        witnessed = self._sorts.get(type(attempt.outcome), -math.inf) > held_up.since and may_be_refusal(exc)
        return seconds > lease * (1 if witnessed else MOST_LEASES)

    def _add_part(self, part: Sequence[Attempt]) -> None:
        self._parts.append(part)
        self._parted.set()

    def _ask_again(self, busy: Sequence[Attempt]) -> None:
        """Retry later. Jobs that continue a chain are retried one by one: there, one that waits delays the others."""
        together = [attempt for attempt in busy if not _goes_on(attempt)]
        alone = [[attempt] for attempt in busy if _goes_on(attempt)]
        loop = asyncio.get_running_loop()
        for batch in [together, *alone] if together else alone:
            waits = [self._held_up.setdefault(attempt.held, HeldUp()) for attempt in batch]
            if _goes_on(batch[0]) and time.monotonic() - waits[0].since > MOST_LEASES * self._links.timeout:
                batch[0].outcome = Failed(
                    Failure("blocked", "another transaction has blocked the next job for too long")
                )
            loop.call_later(max(wait.pause() for wait in waits), self._queue_again, batch)
            for attempt, wait in zip(batch, waits, strict=True):
                if not wait.logged and time.monotonic() - wait.since > LOG_AFTER:
                    wait.logged = True
                    log.warning(
                        "an outcome waits for another session's open transaction; its lease is renewed meanwhile",
                        extra={"id": attempt.claimed.id, "kind": attempt.claimed.kind},
                    )

    def _queue_again(self, batch: Sequence[Attempt]) -> None:
        self._again.append(batch)
        self._wake.set()

    async def _answers(self, batch: Sequence[Attempt], link: Link) -> Answers:
        """Write the batch, and retry while the database cannot be reached.

        Raise if the database answers a probe, and yet the batch cannot be written.
        """
        for attempt in batch:
            if type(attempt.outcome) is not Completed:
                attempt.traceback = self._traceback(attempt)
                attempt.log = attempt.kept.text() if attempt.kept is not None else None
        held_up = self._held_up.get(batch[0].held) if len(batch) == 1 else None
        seconds = min(BATCH_SECONDS * 2.0 ** (min(held_up.failures, 10) if held_up else 0), self._links.timeout / 2)
        careful = cut_off = False
        while True:
            try:
                if not careful and link.takes_plain and all(map(is_plain, batch)):
                    batch = await self._completed(batch, link, seconds)
                    if not batch:
                        return Answers()
                    careful = True
                return await link.run(finish_jobs(self._row.id, batch, careful=careful), seconds=seconds)
            except psycopg.errors.LockNotAvailable:
                if careful:
                    raise
                careful = True
            except Exception as exc:
                # Once, a lost connection needs no explanation.
                again = link.cut_off and not cut_off
                await self._answering(link, exc)
                if not again:
                    raise
                cut_off = True

    async def _completed(self, batch: Sequence[Attempt], link: Link, seconds: float) -> Sequence[Attempt]:
        """Complete plain outcomes with one plain statement, and return those for which that was not enough."""
        if len({attempt.claimed.id for attempt in batch}) < len(batch):
            return batch  # a job that was claimed twice: its token decides
        done = await link.run(complete_plain(self._row.id, batch), seconds=seconds)
        if done is None:
            return ()
        ids = set(done)
        return [attempt for attempt in batch if attempt.claimed.id not in ids]

    async def _answering(self, link: Link, exc: Exception) -> None:
        """Return when the database answers a probe and can be written. `exc`: why that is asked."""
        while True:
            try:
                await link.probe()
            except Exception as fault:  # noqa: BLE001 - whatever it is, the database does not answer
                await asyncio.sleep(self._outage.failed(fault if self._outage.failures else exc))
            else:
                self._outage.over()
                return

    def _traceback(self, attempt: Attempt) -> str | None:
        raised = attempt.outcome.exception if isinstance(attempt.outcome, Retried | Failed) else None
        # A handler that raises Fail has given its own explanation.
        return traceback_of(raised) if self._tracebacks and raised and not isinstance(raised, Fail) else None

    def _settle(self, batch: Sequence[Attempt]) -> None:
        """Note that these must not be written again if this loop ends and is restarted."""
        if len(batch) == len(self._batch) and (not batch or batch[0] in self._batch):
            self._batch = ()
        elif batch:
            settled = set(batch)
            self._batch = [attempt for attempt in self._batch if attempt not in settled]

    def _close(self, batch: Sequence[Attempt], report: Callable[[], None]) -> None:
        """Count these outcomes as written, even if `report` raises."""
        self._settle(batch)
        self._open -= len(batch)
        self._demand.full = self._open > MOST_AT_ONCE
        self._settled_at = time.monotonic()
        if not self._open:
            self._idle.set()
        try:
            report()
        except BaseException:
            log.exception("written outcomes could not be reported to every listener", extra={"jobs": len(batch)})
        for attempt in batch:
            # The traceback of its exception refers to the attempt, and a circle is freed late.
            del attempt.outcome


def _goes_on(attempt: Attempt) -> bool:
    return isinstance(attempt.outcome, Completed) and attempt.outcome.next is not None
