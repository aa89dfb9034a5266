"""Finishing: outcomes are written in batches, and the next batch collects meanwhile. A single one is not delayed."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg

from holdfast._engine.keeper import unwatched
from holdfast._engine.link import Outage
from holdfast._logs.failure import Failure, traceback_of
from holdfast._logs.log import Log
from holdfast._model.errors import AbortReason, DuplicateJob, InvalidJob
from holdfast._model.job import Completed, Fail, Failed, Retried
from holdfast._store.finish import finish_jobs
from holdfast._store.lease import ClaimAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.keeper import Turn
    from holdfast._engine.link import Link
    from holdfast._store.finish import Answers
    from holdfast._store.lease import Held

MOST_AT_ONCE = 1000
ENOUGH = 250
GATHER_TURNS = 2
# Seconds until an outcome that another transaction blocks is written again; doubled with each attempt.
BUSY_PAUSE = 0.05
LONGEST_BUSY_PAUSE = 2.0
# An outcome that is blocked for this many seconds is logged.
LOG_AFTER = 10.0
LOST_CLAIM = frozenset({AbortReason.taken_by_another_worker, AbortReason.already_completed, AbortReason.not_found})

log = Log(__name__)


@dataclass(slots=True)
class HeldUp:
    """An outcome that another transaction blocks: since when, how often it was tried, and whether it was logged."""

    since: float = field(default_factory=time.monotonic)
    tries: int = 0
    logged: bool = False

    def pause(self) -> float:
        """Return how many seconds to wait before the next try."""
        self.tries += 1
        return min(BUSY_PAUSE * 2.0 ** (self.tries - 1), LONGEST_BUSY_PAUSE)


class Finisher:
    """Writes the outcomes of one worker to one database, and gives none up while its claim may still be valid.

    An outcome that an open transaction blocks is retried separately, while its lease is renewed, for as long as the
    worker lives.
    """

    def __init__(
        self,
        link: Link,
        worker: int,
        written: Callable[[Sequence[Attempt], Answers], None],
        refused: Callable[[Attempt], None],
        *,
        tracebacks: bool = True,
    ) -> None:
        """`written(attempts, answers)`: the batch was answered; an attempt without an answer is completed.

        `refused(attempt)`: the database rejects its outcome. `tracebacks`: store those of failed attempts (default).
        """
        self._link = link
        self.worker = worker
        self._written = written
        self._refused = refused
        self._tracebacks = tracebacks
        self._outage = Outage(log, "finish_jobs failed, trying again")
        self._ended: list[Attempt] = []
        self._again: deque[Sequence[Attempt]] = deque()
        self._held_up: dict[Held, HeldUp] = {}
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
        self._idle.clear()
        self._ended.append(attempt)
        self._wake.set()

    @property
    def full(self) -> bool:
        """Whether outcomes arrive faster than they can be written: then no more jobs should start."""
        return self._open > MOST_AT_ONCE

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

    async def _write_taken(self, batch: Sequence[Attempt]) -> None:
        self._batch = batch
        await self._write(batch)
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

    async def _write(self, batch: Sequence[Attempt]) -> None:
        try:
            answers = await self._answers(batch)
        except Exception as exc:  # noqa: BLE001 - whatever the error is, one of the outcomes caused it
            await self._write_apart(batch, exc)
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
            for attempt in batch:
                self._held_up.pop(attempt.held, None)
        self._close(batch, lambda: self._written(batch, answers))

    async def _write_apart(self, batch: Sequence[Attempt], exc: Exception) -> None:
        """Find the outcome that the database rejects, by halving the batch, and write the others."""
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._write(batch[:middle])
            await self._write(batch[middle:])
            return
        (attempt,) = batch
        self._held_up.pop(attempt.held, None)
        if isinstance(attempt.outcome, Completed):
            # The result or the next job cannot be stored: the job fails with that error.
            attempt.outcome = Failed(Failure.of(exc), exc)
            await self._write(batch)
            return
        log.error(
            "an ending was refused, and its job is left to the reaper", extra={"id": attempt.claimed.id}, exc_info=exc
        )
        self._close(batch, lambda: self._refused(attempt))

    def _ask_again(self, busy: Sequence[Attempt]) -> None:
        """Retry later. Jobs that continue a chain are retried one by one: there, one that waits delays the others."""
        together = [attempt for attempt in busy if not _goes_on(attempt)]
        alone = [[attempt] for attempt in busy if _goes_on(attempt)]
        loop = asyncio.get_running_loop()
        for batch in [together, *alone] if together else alone:
            waits = [self._held_up.setdefault(attempt.held, HeldUp()) for attempt in batch]
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

    async def _answers(self, batch: Sequence[Attempt]) -> Answers:
        """Write the batch, and retry while the database cannot be reached.

        Raise if an outcome itself is the cause: the same call would be rejected again.
        """
        for attempt in batch:
            if type(attempt.outcome) is not Completed:
                attempt.traceback = self._traceback(attempt)
        careful = False
        while True:
            try:
                answers = await self._link.run(finish_jobs(self.worker, batch, careful=careful))
            except psycopg.errors.LockNotAvailable as exc:
                if careful:
                    await asyncio.sleep(self._outage.failed(exc))
                careful = True
            except (DuplicateJob, InvalidJob):
                raise
            except Exception as exc:
                if _is_of_data(exc):
                    raise
                # A migration in progress, a read-only server: these are temporary.
                await asyncio.sleep(self._outage.failed(exc))
            else:
                self._outage.over()
                return answers

    def _traceback(self, attempt: Attempt) -> str | None:
        raised = attempt.outcome.exception if isinstance(attempt.outcome, Retried | Failed) else None
        # A handler that raises Fail has given its own explanation.
        return traceback_of(raised) if self._tracebacks and raised and not isinstance(raised, Fail) else None

    def _settle(self, batch: Sequence[Attempt]) -> None:
        """Note that these must not be written again if this loop ends and is restarted."""
        if len(batch) == len(self._batch):
            self._batch = ()
        elif batch:
            settled = set(batch)
            self._batch = [attempt for attempt in self._batch if attempt not in settled]

    def _close(self, batch: Sequence[Attempt], report: Callable[[], None]) -> None:
        """Count these outcomes as written, even if `report` raises."""
        self._settle(batch)
        self._open -= len(batch)
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


def _is_of_data(exc: Exception) -> bool:
    cause = exc if isinstance(exc, psycopg.Error) else exc.__cause__
    if isinstance(cause, psycopg.errors.CheckViolation):
        # A missing partition has the same error code but no constraint name, and will be created.
        return cause.diag.constraint_name is not None
    return isinstance(cause, psycopg.DataError | psycopg.IntegrityError)
