"""Sleep of the log's readers: a notification wakes them, and polling is the fallback."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from holdfast._store.sleeper import RECORD_SECONDS, others_ended
from holdfast._store.subscription import own_transaction, read_on

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast._engine.link import Link

# A record is renewed before it expires.
RENEWED = 0.8 * RECORD_SECONDS
# While older transactions may not have seen the sleep record, poll with backoff: from 20 ms up to once a second.
FIRST_LOOK, LAST_LOOK = 0.02, 1.0


class LogWaker:
    """Wakes all readers of a process. A reader records that it sleeps, reads once more, and only then waits."""

    def __init__(
        self,
        link: Link,
        *,
        worker: Callable[[], int],
        topics: Sequence[str],
        heard: Callable[[], bool],
        idle: tuple[float, float],
    ) -> None:
        """`heard()` is true while notifications arrive. `idle`: shortest and longest pause without them, in seconds."""
        self._link = link
        self._worker = worker
        self._topics = topics
        self.heard = heard
        self.idle = idle
        self.rung = asyncio.Event()
        self.records = 0
        """Number of records made. A read counts only if the latest record existed before it."""
        self._recorded_until = 0.0
        self._horizon: str | None = None
        self._lock = asyncio.Lock()

    def ring(self) -> None:
        """Wake all readers."""
        rung, self.rung = self.rung, asyncio.Event()
        rung.set()

    def sleeper(self) -> Sleeper:
        return Sleeper(self)

    async def record(self) -> None:
        """Record the sleep, so that every later publish sends a notification."""
        async with self._lock:
            if self.heard() and time.monotonic() >= self._recorded_until:
                begun = time.monotonic()
                await self._link.run(read_on(self._worker(), self._topics))
                self.records += 1
                self._horizon = await self._link.run(own_transaction())
                self._recorded_until = begun + RENEWED

    async def safe(self) -> bool:
        """Return whether all transactions that could have missed the record have ended."""
        horizon = self._horizon
        # Meanwhile another record may have been made, with its own horizon.
        if horizon is not None and await self._link.run(others_ended(horizon)) and self._horizon == horizon:
            self._horizon = None
        return self._horizon is None

    @property
    def expires_in(self) -> float:
        return max(0.0, self._recorded_until - time.monotonic())


class Sleeper:
    """One reader's sleep: short polls at first, then until a notification."""

    def __init__(self, bell: LogWaker) -> None:
        self._bell = bell
        self._rung = bell.rung
        self._records = 0
        self._pause = 0.0

    def listen(self) -> None:
        """Catch notifications from here on. Call it before each read."""
        self._rung = self._bell.rung
        self._records = self._bell.records

    async def may_sleep(self) -> bool:
        """Return whether the last read happened under a record that is still valid, whichever reader made it."""
        await self._bell.record()
        return self._records == self._bell.records

    def begin(self) -> None:
        """Reset the backoff, because there was work."""
        self._pause = 0.0

    async def sleep(self, longest: float) -> None:
        """Wait for a notification, or for as long as it is safe not to read, at most `longest` seconds."""
        bell = self._bell
        if not bell.heard():
            least, most = bell.idle
            self._pause = min(most, max(least, self._pause * 2))
            seconds = self._pause * random.uniform(0.8, 1)  # noqa: S311 - spreads load, not security
        elif await bell.safe():
            seconds = bell.expires_in
        else:
            self._pause = min(LAST_LOOK, max(FIRST_LOOK, self._pause * 2))
            seconds = self._pause
        try:
            async with asyncio.timeout(min(seconds, longest)):
                await self._rung.wait()
        except TimeoutError:
            pass
