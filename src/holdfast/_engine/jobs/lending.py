"""Lending: slots of a database that does not answer are used for the other databases of the worker."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast._engine.keeper import unwatched
from holdfast._logs.log import Log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._engine.attempt import Attempt
    from holdfast._engine.jobs.dispatch import Dispatcher
    from holdfast._engine.jobs.ready import ReadyJobs
    from holdfast._engine.keeper import Turn
    from holdfast._engine.session import Session

log = Log(__name__)

# Seconds between two checks whether the database answers.
LOOK_SECONDS = 1.0
# Seconds without an answer after which a statement is assumed to be stuck.
SILENT_SECONDS = 3.0


class Lending:
    """Lends the slots of one of several databases: its running jobs do not count while it does not answer.

    They continue until the heartbeat aborts them, so more handlers than slots may run for a while.
    """

    def __init__(self, session: Session, dispatcher: Dispatcher, ready: ReadyJobs) -> None:
        self._session = session
        self._links = (session.links.claim, session.links.finish)
        self._dispatcher = dispatcher
        self._ready = ready
        self._lent = ready.lent
        self._asking: asyncio.Task[None] | None = None

    async def run(self, turn: Turn = unwatched) -> None:
        try:
            while True:
                turn(LOOK_SECONDS)
                await asyncio.sleep(LOOK_SECONDS)
                self._look()
        finally:
            if self._asking is not None:
                self._asking.cancel()

    def _look(self) -> None:
        for attempt in [attempt for attempt in self._lent if attempt.task is None or attempt.task.done()]:
            self._ready.take_back_slot(attempt)
        running = [attempt for attempt in self._session.held.values() if _runs(attempt)]
        if any(link.silent(SILENT_SECONDS) for link in self._links):
            self._lend([attempt for attempt in running if attempt not in self._lent])
        elif self._lent:
            self._take_back()
        if running and (self._asking is None or self._asking.done()) and not self._links[0].busy:
            self._asking = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        with suppress(Exception):
            await self._links[0].probe()

    def _lend(self, attempts: Sequence[Attempt]) -> None:
        self._dispatcher.give_back(self._ready)
        if not attempts:
            return
        if not self._lent:
            extra = {"database": self._session.name}
            log.warning("a database does not answer: its slots are lent to the others", extra=extra)
        self._lent.update(attempts)
        self._dispatcher.slots.lend(_by_queue(attempts))
        self._dispatcher.dispatch()

    def _take_back(self) -> None:
        lent = [attempt for attempt in self._lent if _runs(attempt)]
        self._lent.clear()
        self._dispatcher.slots.lend({queue: -slots for queue, slots in _by_queue(lent).items()})


def _runs(attempt: Attempt) -> bool:
    """Return whether this attempt occupies a slot. In a batch, only the first one does."""
    has_slot = attempt.group is None or attempt.group[0] is attempt
    return has_slot and attempt.task is not None and not attempt.task.done()


def _by_queue(attempts: Sequence[Attempt]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for attempt in attempts:
        counts[attempt.claimed.queue] = counts.get(attempt.claimed.queue, 0) + 1
    return counts
