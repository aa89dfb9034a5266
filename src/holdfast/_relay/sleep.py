"""Sleep of the log's readers: a notification wakes them, and polling is the fallback."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast._engine.wake.sleep import RENEWED_AFTER, RecordedSleep, follow
from holdfast._store.sleeper import watch_horizon
from holdfast._store.subscription import record_reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._engine.link import Link
    from holdfast._engine.session import Session


class LogWaker:
    """Wakes all readers of a process. They share one record of their sleep."""

    def __init__(self, link: Link, session: Session, *, topics: Sequence[str], idle: tuple[float, float]) -> None:
        """`idle`: the shortest and longest pause while no notifications arrive, in seconds."""
        self._link = link
        self._row = session.row
        self._topics = topics
        self.published = session.published
        self.listening = session.listening
        """Set while notifications arrive."""
        self.idle = idle
        self.changes = 0
        """Increases when a record is made and when every transaction sees it. Only later reads count."""
        self._recorded = RecordedSleep[int]()
        self._renew_at = 0.0
        self._lock = asyncio.Lock()

    def wake(self) -> None:
        self.published.wake()

    def sleeper(self) -> Sleeper:
        return Sleeper(self)

    async def record(self) -> None:
        """Record the sleep, so that every later publish sends a notification."""
        async with self._lock:
            if self.listening.is_set() and (now := time.monotonic()) >= self._renew_at:
                worker = self._row.id
                record = record_reader(worker, self._topics)
                if await follow(self._link, self._recorded.fall_asleep(worker, record, watch_horizon())) is not None:
                    self.changes += 1
                self._renew_at = now + RENEWED_AFTER

    async def sleep_until(self) -> float:
        """Return how long it is safe not to read, by the monotonic clock."""
        async with self._lock:
            if self._recorded.seen is None and time.monotonic() >= self._recorded.look_at:
                self.changes += await follow(self._link, self._recorded.settle())
            return self._recorded.look_at if self._recorded.seen is None else self._renew_at


class Sleeper:
    """One reader's sleep. It reads between `listen` and `may_sleep`."""

    def __init__(self, waker: LogWaker) -> None:
        self._waker = waker
        self._awoken = waker.published.awoken
        self._changes = 0
        self._pause = 0.0

    def listen(self) -> None:
        """Catch notifications from here on. Call it before each read."""
        self._awoken = self._waker.published.awoken
        self._changes = self._waker.changes

    async def may_sleep(self) -> bool:
        """Return whether the last read happened under a record that is still valid, whichever reader made it."""
        await self._waker.record()
        return self._changes == self._waker.changes

    def begin(self) -> None:
        """Reset the backoff, because there was work."""
        self._pause = 0.0

    async def sleep(self, longest: float) -> None:
        """Wait for a notification, or for as long as it is safe not to read, at most `longest` seconds."""
        if self._waker.listening.is_set():
            seconds = await self._waker.sleep_until() - time.monotonic()
            if self._changes != self._waker.changes:
                # Transactions without a notification may have ended since the last read.
                return
        else:
            least, limit = self._waker.idle
            self._pause = min(limit, max(least, self._pause * 2))
            seconds = self._pause * random.uniform(0.8, 1)  # noqa: S311 - spreads load, not security
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, longest)):
                await self._awoken.wait()
