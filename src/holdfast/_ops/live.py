"""The live overview as Server-Sent Events: one reader for all clients."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from starlette.responses import Response

from holdfast._logs.log import Log
from holdfast._ops.caller import Limited, RequestRefused, Role
from holdfast._ops.responses.job import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from starlette.types import Receive, Scope, Send

    from holdfast._ops.caller import Person

log = Log(__name__)

EVERY = 2.0
LISTENERS = 200
OWN_LISTENERS = 20
"""The most streams per caller, for several browser tabs."""
HEARTBEAT = 15.0
"""Seconds after which an idle stream sends a keep-alive, and every stream checks its client's access again."""
LIFE = 300.0
"""Seconds after which a stream ends. Browsers reconnect by themselves."""
SEND_SECONDS = 30.0
_OPENING = b"retry: 1000\n\n"
_ALIVE = b": alive\n\n"


class LiveClient:
    """One client, woken on each new reading. Nothing is queued: a slow client skips to the newest one."""

    __slots__ = ("by", "gone", "woken")

    def __init__(self, by: Person) -> None:
        self.by = by
        self.woken = asyncio.Event()
        self.gone = False

    def leave(self) -> None:
        self.gone = True
        self.woken.set()


class LiveOverview:
    """Reads periodically while there are clients, and only then. All clients share one reading and its bytes."""

    def __init__(
        self,
        read: Callable[[], Awaitable[bytes]],
        *,
        every: float = EVERY,
        limit: int = LISTENERS,
        heartbeat: float = HEARTBEAT,
        life: float = LIFE,
    ) -> None:
        """`read()` returns JSON on one line. `every`, `heartbeat` and `life` are in seconds."""
        self._read = read
        self._every = every
        self._limit = limit
        self.heartbeat = heartbeat
        self.life = life
        self._listeners: set[LiveClient] = set()
        self._reader: asyncio.Task[None] | None = None
        self._ended = False
        self.number = 0
        """Number of readings so far."""
        self.newest = b""

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def check(self, by: Person) -> None:
        """Refuse if the streams, or this caller's share of them, are used up. Viewers get at most three quarters."""
        if self._ended:
            raise RequestRefused(503, "stopping", "This server is stopping.")
        if sum(listener.by == by for listener in self._listeners) >= min(OWN_LISTENERS, max(1, self._limit // 2)):
            raise Limited(1, "too_many_of_yours", "You have too many live streams open.")
        limit = max(1, self._limit * 3 // 4) if by.role is Role.VIEWER else self._limit
        if self.listeners >= limit:
            raise RequestRefused(
                503, "too_many_listeners", f"{limit} already listen: ask for the overview now and then."
            )

    @contextmanager
    def listening(self, by: Person) -> Iterator[LiveClient]:
        listener = LiveClient(by)
        self._listeners.add(listener)
        if self._reader is None and not self._ended:
            self._reader = asyncio.create_task(self._read_periodically(), name="holdfast-live")
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._reader is not None:
                self._reader.cancel()
                self._reader = None
                # The last reading would be outdated for the next client.
                self.newest = b""

    def end(self) -> None:
        """End all streams and refuse new ones."""
        self._ended = True
        for listener in list(self._listeners):
            listener.leave()

    async def _read_periodically(self) -> None:
        while True:
            began = time.monotonic()
            self.newest = await self._event()
            self.number += 1
            if _server_stops():
                self.end()
            for listener in self._listeners:
                listener.woken.set()
            await asyncio.sleep(max(0.0, began + self._every - time.monotonic()))

    async def _event(self) -> bytes:
        try:
            return b"data: " + await self._read() + b"\n\n"
        except RequestRefused as exc:
            refused = exc
        except Exception:
            log.exception("the overview cannot be read")
            refused = RequestRefused(500, "internal", "The overview cannot be read; the log says why.")
        return b"event: trouble\ndata: " + Refusal.from_refused(refused).model_dump_json().encode() + b"\n\n"


class LiveResponse(Response):
    """The stream of one client. It ends once `still()` returns false."""

    media_type = "text/event-stream"

    def __init__(self, overview: LiveOverview, by: Person, still: Callable[[], Awaitable[bool]]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._overview = overview
        self._by = by
        self._still = still

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        with self._overview.listening(self._by) as listener:
            watching = asyncio.create_task(_watch(receive, listener))
            try:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await self._stream(listener, send)
            except (OSError, TimeoutError):
                log.debug("a client of the live overview is gone or does not read")
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    async def _stream(self, listener: LiveClient, send: Send) -> None:
        message, ends = _OPENING, time.monotonic() + self._overview.life
        looked, number = time.monotonic(), -1
        while not listener.gone and time.monotonic() < ends:
            if message:
                await _send(send, message)
            if time.monotonic() - looked >= self._overview.heartbeat:
                looked = time.monotonic()
                if not await self._still():
                    break
            number, message = await self._next(listener, number)
        await _send(send, b"", more=False)

    async def _next(self, listener: LiveClient, number: int) -> tuple[int, bytes]:
        """Return the first reading newer than `number`, or a keep-alive after the heartbeat interval."""
        overview = self._overview
        if overview.number == number or not overview.newest:
            listener.woken.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(overview.heartbeat):
                    await listener.woken.wait()
        if overview.number == number or not overview.newest:
            return number, _ALIVE
        return overview.number, overview.newest


async def _send(send: Send, body: bytes, *, more: bool = True) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": more})


async def _watch(receive: Receive, listener: LiveClient) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    listener.leave()


def _server_stops() -> bool:
    """Return whether uvicorn, if used, is stopping. It waits for open streams before its shutdown event."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))
