"""What is open while the application answers in one event loop: the desk, and the pulse that reads from it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from holdfast.logs import Log
from holdfast.ops.pulse import Pulse
from holdfast.ops.refusal import Refused
from holdfast.ops.share import Shares

if TYPE_CHECKING:
    from datetime import timedelta

    from holdfast.ops.desk import Desk

log = Log(__name__)

COUNT_EVERY = 5.0
MINUTES = 60


class Room:
    """Opened without waiting, since the desk connects when it is first asked."""

    def __init__(self, desk: Desk, *, connections: int, every: timedelta, listeners: int) -> None:
        self.shares = Shares(connections)
        self.loop = asyncio.get_running_loop()
        self.desk = desk
        self.pulse = Pulse(self._read, every=every.total_seconds(), most=listeners)
        self._counting: asyncio.Task[None] | None = None
        self._counted = -COUNT_EVERY

    async def close(self) -> None:
        self.pulse.end()
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)
        await self.desk.__aexit__(None, None, None)

    async def _read(self) -> bytes:
        self._count()
        return (await self.desk.overview(MINUTES)).model_dump_json().encode()

    def _count(self) -> None:
        """Let live jobs be counted, where no worker does it; nobody waits for that."""
        if self._counting is not None and not self._counting.done():
            return
        if time.monotonic() - self._counted >= COUNT_EVERY:
            self._counted = time.monotonic()
            self._counting = asyncio.create_task(self._count_once(), name="holdfast-count")

    async def _count_once(self) -> None:
        try:
            await self.desk.count(small=False)
        except Refused as exc:
            log.debug("live jobs were not counted", extra={"why": exc.code})
        except Exception:
            log.exception("live jobs cannot be counted")
