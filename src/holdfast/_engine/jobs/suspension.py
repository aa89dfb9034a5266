"""Suspending an async handler: once all its tasks wait, it is cancelled, which every scope can unwind."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from holdfast._engine.attempt import Attempt

# Turns of the event loop in which no task of the handler calls a verb, before its story is suspended.
CALM_TURNS = 10


class Suspended(BaseException):
    """Unwinds a plain handler whose story is suspended. Not an Exception, so that `except Exception` lets it pass."""


class Suspension:
    """The suspension of one attempt: which of its verbs wait, and until when."""

    def __init__(self, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> None:
        self._attempt = attempt
        self._loop = loop
        self._parked: dict[asyncio.Future[None], datetime] = {}
        """Verbs that wait, and until when each does."""
        self._at_work = 0
        """How many other verbs have been called and have not returned."""
        self._idle = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self.due: datetime | None = None
        """When the story goes on; None: it is not suspended."""

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Keep the handler from being suspended: a verb of another task may have more to do."""
        self._begin()
        try:
            yield
        finally:
            self._rest()

    def _begin(self) -> None:
        self._at_work += 1
        self._idle.clear()

    def _rest(self) -> None:
        self._at_work -= 1
        if not self._at_work:
            self._idle.set()

    async def park(self, due: datetime) -> NoReturn:
        """Wait, in a verb that is at work, until the handler is cancelled."""
        parked: asyncio.Future[None] = self._loop.create_future()
        self._parked[parked] = due
        if self.due is not None:
            self._cancel()
        elif self._watch is None:
            self._watch = self._loop.create_task(self._cancel_when_idle(), name="holdfast-suspension")
        self._rest()
        try:
            await parked
        finally:
            self._begin()
            if self.due is None:  # another scope of the handler has cancelled it
                del self._parked[parked]
        raise asyncio.CancelledError

    async def _cancel_when_idle(self) -> None:
        calm = 0
        while self._parked and calm < CALM_TURNS:
            await self._idle.wait()
            await asyncio.sleep(0)
            calm = 0 if self._at_work else calm + 1
        self._watch = None
        if self._parked:
            self.due = min(self._parked.values())
            self._cancel()

    def _cancel(self) -> None:
        if self._attempt.task is not None:
            self._attempt.task.cancel()

    def stop(self) -> None:
        """Suspend nothing any more: the handler has ended."""
        if self._watch is not None:
            self._watch.cancel()

    def end_tasks(self) -> None:
        """End the tasks that the handler left behind."""
        for parked in [*self._parked]:
            parked.cancel()
