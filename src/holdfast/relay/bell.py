"""When readers of the log sleep, and how they are woken: by a notification, and by looking again underneath."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from holdfast.store.sleeper import RECORD_SECONDS, others_ended
from holdfast.store.subscription import own_transaction, read_on

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.engine.link import Link

# A record is renewed before it expires.
RENEWED = 0.8 * RECORD_SECONDS
# While somebody may be under way who has not seen the record: look this often, less and less, and then every second.
FIRST_LOOK, LAST_LOOK = 0.02, 1.0


class Bell:
    """One for all that a process reads. A sleeper records itself, looks once more, and only then waits."""

    def __init__(
        self,
        link: Link,
        *,
        worker: Callable[[], int],
        topics: Sequence[str],
        heard: Callable[[], bool],
        idle: tuple[float, float],
    ) -> None:
        """`heard()`: whether notifications reach us. `idle`: the least and the longest pause where they do not."""
        self._link = link
        self._worker = worker
        self._topics = topics
        self.heard = heard
        self.idle = idle
        self.rung = asyncio.Event()
        self.records = 0
        """How many were made: a look counts only if the last of them was there before it."""
        self._recorded_until = 0.0
        self._horizon: str | None = None
        self._lock = asyncio.Lock()

    def ring(self) -> None:
        """Wake everybody."""
        rung, self.rung = self.rung, asyncio.Event()
        rung.set()

    def sleeper(self) -> Sleeper:
        return Sleeper(self)

    async def record(self) -> None:
        """See to it that whoever publishes from now on rings."""
        async with self._lock:
            if self.heard() and time.monotonic() >= self._recorded_until:
                begun = time.monotonic()
                await self._link.run(read_on(self._worker(), self._topics))
                self.records += 1
                self._horizon = await self._link.run(own_transaction())
                self._recorded_until = begun + RENEWED

    async def safe(self) -> bool:
        """Tell whether everybody who could have missed the record has ended."""
        horizon = self._horizon
        # Another record may have been made meanwhile, with a horizon of its own.
        if horizon is not None and await self._link.run(others_ended(horizon)) and self._horizon == horizon:
            self._horizon = None
        return self._horizon is None

    @property
    def expires_in(self) -> float:
        return max(0.0, self._recorded_until - time.monotonic())


class Sleeper:
    """One reader's sleep: lightly at first, then until the bell rings."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._rung = bell.rung
        self._records = 0
        self._pause = 0.0

    def listen(self) -> None:
        """Hear what rings from here on: before a look."""
        self._rung = self._bell.rung
        self._records = self._bell.records

    async def may_sleep(self) -> bool:
        """Tell whether the last look was taken under a record that still holds, whoever of us made it."""
        await self._bell.record()
        return self._records == self._bell.records

    def begin(self) -> None:
        """Start over: there was work."""
        self._pause = 0.0

    async def sleep(self, longest: float) -> None:
        """Wait for the bell, or for as long as it is safe not to look."""
        bell = self._bell
        if not bell.heard():
            least, most = bell.idle
            self._pause = min(most, max(least, self._pause * 2))
            seconds = self._pause * random.uniform(0.8, 1)  # noqa: S311 - spreads load, guards nothing
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
