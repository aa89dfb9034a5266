"""Readings of a database that concurrent requests share, each with a limited wait."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from holdfast._logs.log import Log
from holdfast._ops.caller import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = Log(__name__)

T = TypeVar("T")

FRESH_SECONDS = 1.0
PATIENCE_SECONDS = 1.5


class Reading(NamedTuple, Generic[T]):
    value: T
    at: float
    """When it was there, by the monotonic clock."""


class NewestReading(Generic[T]):
    """The newest reading of one thing. There is one read at a time, however many ask."""

    def __init__(self, *, fresh: float = FRESH_SECONDS, patience: float | None = PATIENCE_SECONDS) -> None:
        """`fresh`: seconds for which a reading is used again. Default: 1.

        `patience`: the longest wait for a read, in seconds. None: as long as it takes. Default: 1.5.
        """
        self._fresh = fresh
        self._patience = patience
        self._task: asyncio.Task[T | RequestRefused] | None = None
        self._began = 0.0
        self.last: Reading[T] | None = None
        """The last reading, however old."""

    async def get(self, read: Callable[[], Awaitable[T]]) -> T:
        """Return a fresh reading. Raise RequestRefused if it is refused, or not there within `patience`.

        A read that is late goes on, and later calls do not wait for it.
        """
        now = time.monotonic()
        task = self._task
        if task is None or task.get_loop() is not asyncio.get_running_loop() or self._is_old(task, now):
            self._began = now
            task = self._task = asyncio.create_task(self._look(read), name="holdfast-newest")
        if not task.done():
            left = None if self._patience is None else max(0.0, self._began + self._patience - now)
            await asyncio.wait({task}, timeout=left)
        if not task.done():
            seconds = time.monotonic() - self._began
            raise RequestRefused(503, "database_unreachable", f"The database has not answered for {seconds:.0f} s.")
        found = task.result()
        if isinstance(found, RequestRefused):
            raise found
        return found

    def cancel(self) -> None:
        """End a read that is under way."""
        if self._task is not None:
            self._task.cancel()

    def _is_old(self, task: asyncio.Task[T | RequestRefused], now: float) -> bool:
        return task.cancelled() or (task.done() and now - self._began >= self._fresh)

    async def _look(self, read: Callable[[], Awaitable[T]]) -> T | RequestRefused:
        try:
            found = await read()
        except RequestRefused as exc:
            return exc
        except Exception:
            log.exception("a database cannot be read")
            return RequestRefused(500, "internal", "The database cannot be read; the log has the reason.")
        self.last = Reading(found, time.monotonic())
        return found


GRACE_SECONDS = 300.0
_MOST_REMEMBERED = 1_000


class CachedReading(Generic[T]):
    """Asks a database about a key, and repeats its last answer for a while if it does not answer."""

    def __init__(self, ask: Callable[[str], Awaitable[T]], *, grace: float = GRACE_SECONDS) -> None:
        """`grace`: seconds for which an answer is repeated. Default: 300."""
        self._ask = ask
        self._grace = grace
        self._known: OrderedDict[str, NewestReading[T]] = OrderedDict()

    async def __call__(self, key: str) -> T:
        newest = self._known.pop(key, None) or NewestReading[T](fresh=0.0)
        self._known[key] = newest
        while len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        try:
            return await newest.get(partial(self._ask, key))
        except RequestRefused as exc:
            last, unavailable = newest.last, exc.status == 503  # noqa: PLR2004 - HTTP 503 Service Unavailable
            if last is None or not unavailable or time.monotonic() - last.at > self._grace:
                raise
            return last.value
