"""Finishing: whatever is ready is written in one call while the next batch gathers. A lone job is written at once."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeAlias

import psycopg

from holdfast.abort import AbortReason
from holdfast.engine.outage import Outage
from holdfast.errors import DuplicateJob, InvalidJob
from holdfast.failure import Failure
from holdfast.outcome import Completed, Failed
from holdfast.store.finish import Ending, finish_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.engine.attempt import Attempt
    from holdfast.engine.link import Link
    from holdfast.outcome import Outcome
    from holdfast.store.finish import Answer
    from holdfast.store.lease import Held

    Ended: TypeAlias = tuple[Attempt, Outcome]
    Written: TypeAlias = Callable[[Sequence[Ended], Mapping[Held, Answer]], None]

MOST_AT_ONCE = 1000
ENOUGH = 250
GATHER_TURNS = 2
# A row that somebody has locked is asked for again after this much time.
BUSY_PAUSE = 0.05
# An ending that the database refuses is left to the reaper after so many tries.
MOST_TRIES = 5
LOST_CLAIM = frozenset({AbortReason.taken_by_another_worker, AbortReason.already_completed, AbortReason.not_found})

log = logging.getLogger(__name__)


class Finisher:
    """Writes the endings of one worker to one database, and gives none up while it may still be ours."""

    def __init__(self, link: Link, worker: int, written: Written) -> None:
        """`written(batch, answers)`: their fate is known; what has no answer is completed."""
        self._link = link
        self._worker = worker
        self._written = written
        self._outage = Outage(log, "finish_jobs failed, trying again")
        self._ready: list[Ended] = []
        self._open = 0
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, attempt: Attempt, outcome: Outcome) -> None:
        self._open += 1
        self._idle.clear()
        self._ready.append((attempt, outcome))
        self._wake.set()

    @property
    def full(self) -> bool:
        """Whether endings come faster than they can be written: then nothing more should be started."""
        return self._open > MOST_AT_ONCE

    async def flushed(self) -> None:
        """Return when the fate of everything added is known."""
        await self._idle.wait()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._ready:
                # When handlers are quick, more ends with each turn of the loop; a lone ending waits for two empty ones.
                for _ in range(GATHER_TURNS):
                    if len(self._ready) >= ENOUGH:
                        break
                    await asyncio.sleep(0)
                batch = self._ready[:MOST_AT_ONCE]
                del self._ready[: len(batch)]
                await self._write(batch)

    def _queue(self, batch: Sequence[Ended]) -> None:
        self._ready += batch
        self._wake.set()

    async def _write(self, batch: Sequence[Ended]) -> None:
        try:
            answers = await self._answers(batch)
        except (DuplicateJob, InvalidJob) as exc:
            await self._write_without_next(batch, exc)
            return
        except Exception:
            log.exception("endings were refused", extra={"jobs": len(batch)})
            if len(batch) == 1:
                self._close(batch, {batch[0][0].held: AbortReason.error})
                return
            # One of them is the cause, and must not hold up the others.
            for ended in batch:
                await self._write([ended])
            return
        if "busy" in answers.values():
            # Ours still, but somebody has the row locked just now.
            busy = [e for e in batch if answers.get(e[0].held) == "busy" and e[0].signal.reason not in LOST_CLAIM]
            asyncio.get_running_loop().call_later(BUSY_PAUSE, self._queue, busy)
            batch = [ended for ended in batch if ended not in busy]
        self._close(batch, answers)

    async def _write_without_next(self, batch: Sequence[Ended], exc: Exception) -> None:
        """Let a chain whose next job cannot be enqueued end as failed, with the job that asked for it."""
        if len(batch) == 1:
            await self._write([(batch[0][0], Failed(Failure.of(exc), exc))])
            return
        going_on = [ended for ended in batch if isinstance(ended[1], Completed) and ended[1].next is not None]
        await self._write([ended for ended in batch if ended not in going_on])
        for ended in going_on:
            await self._write([ended])

    async def _answers(self, batch: Sequence[Ended]) -> dict[Held, Answer]:
        """Write, and write again while the database cannot be reached: for that is no reason to give up."""
        endings = [Ending(attempt.claimed, outcome) for attempt, outcome in batch]
        careful, refusals = False, 0
        while True:
            try:
                answers = await self._link.run(finish_jobs(self._worker, endings, careful=careful))
            except psycopg.errors.LockNotAvailable:
                careful = True
            except (DuplicateJob, InvalidJob):
                raise
            except Exception as exc:
                # Bad data is some ending's fault. Anything else (a schema under migration, a server that only reads)
                # will pass.
                if _is_of_data(exc):
                    refusals += 1
                    if refusals == MOST_TRIES or len(batch) > 1:
                        raise
                await asyncio.sleep(self._outage.failed(exc))
            else:
                self._outage.over()
                return answers

    def _close(self, batch: Sequence[Ended], answers: Mapping[Held, Answer]) -> None:
        self._open -= len(batch)
        self._written(batch, answers)
        if not self._open:
            self._idle.set()


def _is_of_data(exc: Exception) -> bool:
    cause = exc if isinstance(exc, psycopg.Error) else exc.__cause__
    return isinstance(cause, psycopg.DataError | psycopg.IntegrityError)
