"""The databases of the operations application: each with its own connections, and a summary of its state."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from holdfast._logs.log import Log
from holdfast._ops.caller import RequestRefused, Shares
from holdfast._ops.live import LiveOverview
from holdfast._ops.newest import NewestReading
from holdfast._ops.responses.fleet import DatabaseFigures, DatabaseLine

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from holdfast._ops.outbox import OutboxEndpoints
    from holdfast._ops.responses.fleet import Overview
    from holdfast._ops.service import Service

log = Log(__name__)

COUNT_SECONDS = 5.0
_MINUTES = 60


class WatchedDatabase:
    """One database of the application.

    A mounted application gets no startup or shutdown event, so the first request opens the service, once per event
    loop.
    """

    def __init__(
        self, name: str, open_service: Callable[[], OpenService], outbox: OutboxEndpoints, *, draining: bool = False
    ) -> None:
        self.name = name
        self.draining = draining
        self.outbox = outbox
        self._open_service = open_service
        self._open: OpenService | None = None

    @property
    def service(self) -> Service:
        return self.opened.service

    @property
    def opened(self) -> OpenService:
        """The service of the running event loop."""
        if self._open is None or self._open.loop is not asyncio.get_running_loop():
            self._open = self._open_service()
        return self._open

    async def line(self) -> DatabaseLine:
        """Return the state of the database, at once or after a short wait for its answer."""
        opened, why = self.opened, None
        try:
            await opened.newest.get(partial(opened.service.overview, _MINUTES))
        except RequestRefused as exc:
            why = exc.message
        last = opened.newest.last
        return DatabaseLine(
            name=self.name,
            state="not answering" if why else "draining" if self.draining else "serving",
            draining=self.draining,
            why=why,
            figures=None if last is None else _figures(last.value),
        )

    def end_streams(self) -> None:
        if self._open is not None:
            self._open.live.end()

    async def close(self) -> None:
        """End the streams and close the connections. A later request opens them again."""
        opened, self._open = self._open, None
        if opened is not None and opened.loop is asyncio.get_running_loop():
            await opened.close()


class OpenService:
    """A service and its state for one event loop. It connects on the first query."""

    def __init__(self, service: Service, *, connections: int, every: timedelta, listeners: int) -> None:
        self.shares = Shares(connections)
        self.loop = asyncio.get_running_loop()
        self.service = service
        self.live = LiveOverview(self._read, every=every.total_seconds(), limit=listeners)
        self.newest: NewestReading[Overview] = NewestReading()
        self._counting: asyncio.Task[None] | None = None
        self._counted = -COUNT_SECONDS

    async def close(self) -> None:
        self.live.end()
        self.newest.cancel()
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)
        await self.service.__aexit__(None, None, None)

    async def _read(self) -> bytes:
        self._count()
        return (await self.service.overview(_MINUTES)).model_dump_json().encode()

    def _count(self) -> None:
        """Count live jobs in the background, in case no worker does."""
        if self._counting is not None and not self._counting.done():
            return
        if time.monotonic() - self._counted >= COUNT_SECONDS:
            self._counted = time.monotonic()
            self._counting = asyncio.create_task(self._count_once(), name="holdfast-count")

    async def _count_once(self) -> None:
        try:
            await self.service.count(small=False)
        except RequestRefused as exc:
            log.debug("live jobs were not counted", extra={"why": exc.code})
        except Exception:
            log.exception("live jobs cannot be counted")


def _figures(overview: Overview) -> DatabaseFigures:
    depth, minutes = overview.depth, overview.minutes
    return DatabaseFigures(
        at=overview.at,
        due=depth.due,
        oldest_due_seconds=depth.oldest_due_seconds,
        unfinished=depth.pending + depth.processing + depth.blocked,
        # The current minute is not over.
        completed_minute=minutes[-2].completed if len(minutes) > 1 else 0,
        failed_hour=overview.failed,
        workers=overview.workers,
        problems=len(overview.problems),
    )
