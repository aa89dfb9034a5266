"""Finishing: whatever is ready is written in one call while the next batch gathers. A lone job is written at once."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import psycopg

from holdfast.abort import AbortReason
from holdfast.engine.keeper import unwatched
from holdfast.engine.outage import Outage
from holdfast.errors import DuplicateJob, InvalidJob
from holdfast.failure import Failure, traceback_of
from holdfast.logs import Log
from holdfast.outcome import Completed, Fail, Failed, Retried
from holdfast.store.answer import Answer
from holdfast.store.finish import Ending, finish_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.engine.attempt import Attempt
    from holdfast.engine.keeper import Turn
    from holdfast.engine.link import Link
    from holdfast.outcome import Outcome
    from holdfast.store.lease import Held

    Ended: TypeAlias = tuple[Attempt, Outcome]
    Written: TypeAlias = Callable[[Sequence[Ended], Mapping[Held, Answer]], None]

MOST_AT_ONCE = 1000
ENOUGH = 250
GATHER_TURNS = 2
# An ending that somebody's transaction holds up is asked for again after this much time, then after twice as much.
BUSY_PAUSE = 0.05
LONGEST_BUSY_PAUSE = 2.0
# Held up for so long, it is said in the log.
SAY_AFTER = 10.0
LOST_CLAIM = frozenset({AbortReason.taken_by_another_worker, AbortReason.already_completed, AbortReason.not_found})

log = Log(__name__)


@dataclass(slots=True)
class HeldUp:
    """An ending that waits for somebody else's transaction: since when, how often it was tried, whether it is said."""

    since: float = field(default_factory=time.monotonic)
    tried: int = 0
    said: bool = False

    def pause(self) -> float:
        """Return how long to wait before it is asked for again."""
        self.tried += 1
        return min(BUSY_PAUSE * 2.0 ** (self.tried - 1), LONGEST_BUSY_PAUSE)


class Finisher:
    """Writes the endings of one worker to one database, and gives none up while it may still be ours.

    What somebody's open transaction holds up is asked for again apart from everything else, while its lease is renewed,
    for as long as the worker lives.
    """

    def __init__(
        self, link: Link, worker: int, written: Written, refused: Callable[[Attempt], None], *, tracebacks: bool = True
    ) -> None:
        """`written(batch, answers)`: their fate is known; what has no answer is completed.

        `refused(attempt)`: the database does not accept its ending. `tracebacks`: keep those of failed attempts.
        """
        self._link = link
        self.worker = worker
        self._written = written
        self._refused = refused
        self._tracebacks = tracebacks
        self._outage = Outage(log, "finish_jobs failed, trying again")
        self._ready: list[Ended] = []
        self._again: deque[Sequence[Ended]] = deque()
        self._held_up: dict[Held, HeldUp] = {}
        self._batch: Sequence[Ended] = ()
        """Taken to be written, and not yet known to be. A loop that ends meanwhile leaves it to the next."""
        self._open = 0
        self._settled_at = 0.0
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, attempt: Attempt, outcome: Outcome) -> None:
        if self._open == len(self._held_up):
            self._settled_at = time.monotonic()
        self._open += 1
        self._idle.clear()
        self._ready.append((attempt, outcome))
        self._wake.set()

    @property
    def full(self) -> bool:
        """Whether endings come faster than they can be written: then nothing more should be started."""
        return self._open > MOST_AT_ONCE

    @property
    def unwritten(self) -> float:
        """For how many seconds endings have waited while none was written; 0 when none waits. From any thread.

        One that waits for somebody's open transaction does not count.
        """
        return time.monotonic() - self._settled_at if self._open > len(self._held_up) else 0.0

    async def flushed(self) -> None:
        """Return when the fate of everything added is known."""
        await self._idle.wait()

    async def run(self, turn: Turn = unwatched) -> None:
        left, self._batch = self._batch, ()
        self._ready += left
        self._wake.set()
        while True:
            turn(math.inf)
            await self._wake.wait()
            self._wake.clear()
            while self._ready or self._again:
                turn()
                if self._ready:
                    await self._write_taken(await self._gathered())
                if self._again:
                    await self._write_taken(self._again.popleft())

    async def _write_taken(self, batch: Sequence[Ended]) -> None:
        self._batch = batch
        await self._write(batch)
        self._batch = ()

    async def _gathered(self) -> Sequence[Ended]:
        # When handlers are quick, more ends with each turn of the loop; a lone ending waits for two empty ones.
        for _ in range(GATHER_TURNS):
            if len(self._ready) >= ENOUGH:
                break
            await asyncio.sleep(0)
        batch = self._ready[:MOST_AT_ONCE]
        del self._ready[: len(batch)]
        return batch

    async def _write(self, batch: Sequence[Ended]) -> None:
        try:
            answers = await self._answers(batch)
        except Exception as exc:  # noqa: BLE001 - whatever the reason, it is some ending's fault
            await self._write_apart(batch, exc)
            return
        if Answer.busy in answers.values():
            # Ours still, but somebody keeps what it needs locked.
            busy = [e for e in batch if answers.get(e[0].held) is Answer.busy and e[0].signal.reason not in LOST_CLAIM]
            self._ask_again(busy)
            self._settle(busy)
            batch = [ended for ended in batch if ended not in busy]
        if self._held_up:
            for attempt, _ in batch:
                self._held_up.pop(attempt.held, None)
        self._close(batch, lambda: self._written(batch, answers))

    async def _write_apart(self, batch: Sequence[Ended], exc: Exception) -> None:
        """Find the ending that the database refuses, by halves: the others are written."""
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._write(batch[:middle])
            await self._write(batch[middle:])
            return
        ((attempt, outcome),) = batch
        self._held_up.pop(attempt.held, None)
        if isinstance(outcome, Completed):
            # Its result, or the job that should follow, cannot be kept: it ends as failed, and says why.
            await self._write([(attempt, Failed(Failure.of(exc), exc))])
            return
        log.error(
            "an ending was refused, and its job is left to the reaper", extra={"id": attempt.claimed.id}, exc_info=exc
        )
        self._close(batch, lambda: self._refused(attempt))

    def _ask_again(self, busy: Sequence[Ended]) -> None:
        """Ask again later; one by one for what goes on a chain: there one that has to wait holds up the others."""
        together = [ended for ended in busy if not _goes_on(ended)]
        alone = [[ended] for ended in busy if _goes_on(ended)]
        loop = asyncio.get_running_loop()
        for batch in [together, *alone] if together else alone:
            waits = [self._held_up.setdefault(attempt.held, HeldUp()) for attempt, _ in batch]
            loop.call_later(max(wait.pause() for wait in waits), self._queue_again, batch)
            for (attempt, _), wait in zip(batch, waits, strict=True):
                if not wait.said and time.monotonic() - wait.since > SAY_AFTER:
                    wait.said = True
                    log.warning(
                        "an ending waits for somebody's open transaction; its lease is renewed meanwhile",
                        extra={"id": attempt.claimed.id, "kind": attempt.claimed.kind},
                    )

    def _queue_again(self, batch: Sequence[Ended]) -> None:
        self._again.append(batch)
        self._wake.set()

    async def _answers(self, batch: Sequence[Ended]) -> dict[Held, Answer]:
        """Write, and write again while the database cannot be reached: for that is no reason to give up.

        Raises what is the fault of an ending: the same call would be refused again.
        """
        endings = [self._ending(attempt, outcome) for attempt, outcome in batch]
        careful = False
        while True:
            try:
                answers = await self._link.run(finish_jobs(self.worker, endings, careful=careful))
            except psycopg.errors.LockNotAvailable as exc:
                if careful:
                    await asyncio.sleep(self._outage.failed(exc))
                careful = True
            except (DuplicateJob, InvalidJob):
                raise
            except Exception as exc:
                if _is_of_data(exc):
                    raise
                # A schema under migration, a server that only reads: it will pass.
                await asyncio.sleep(self._outage.failed(exc))
            else:
                self._outage.over()
                return answers

    def _ending(self, attempt: Attempt, outcome: Outcome) -> Ending:
        if type(outcome) is Completed:
            return Ending(attempt.claimed, outcome)
        raised = outcome.exception if isinstance(outcome, Retried | Failed) else None
        # A handler that says Fail has said what there is to say.
        kept = self._tracebacks and raised is not None and not isinstance(raised, Fail)
        return Ending(attempt.claimed, outcome, attempt.seconds, traceback_of(raised) if kept and raised else None)

    def _settle(self, batch: Sequence[Ended]) -> None:
        """Note that these need not be written again by whoever goes on after a loop that ended."""
        if len(batch) == len(self._batch):
            self._batch = ()
        elif batch:
            settled = {id(attempt) for attempt, _ in batch}
            self._batch = [ended for ended in self._batch if id(ended[0]) not in settled]

    def _close(self, batch: Sequence[Ended], tell: Callable[[], None]) -> None:
        """Count these endings as written; whatever `tell` raises, they are."""
        self._settle(batch)
        self._open -= len(batch)
        self._settled_at = time.monotonic()
        if not self._open:
            self._idle.set()
        try:
            tell()
        except BaseException:
            log.exception("written endings could not be told to everybody", extra={"jobs": len(batch)})


def _goes_on(ended: Ended) -> bool:
    return isinstance(ended[1], Completed) and ended[1].next is not None


def _is_of_data(exc: Exception) -> bool:
    cause = exc if isinstance(exc, psycopg.Error) else exc.__cause__
    if isinstance(cause, psycopg.errors.CheckViolation):
        # A missing partition has the same code, names no rule, and will be made.
        return cause.diag.constraint_name is not None
    return isinstance(cause, psycopg.DataError | psycopg.IntegrityError)
