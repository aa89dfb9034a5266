"""A TCP line to a server that can be cut, refused, left half open, delayed or throttled while clients use it."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

from tools.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

T = TypeVar("T")

HOST = "127.0.0.1"
# A direction that holds back more than this reads no further, so that a slow line is felt by who sends.
MOST_HELD = 65_536
# Closing says nothing and waits for nothing: the peer gets a reset.
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class _Weather:
    """How a line treats bytes."""

    delay: float = 0
    rate: float | None = None
    swallows: bool = False

    @property
    def is_fair(self) -> bool:
        return not self.delay and self.rate is None and not self.swallows


class Proxy:
    """Stands before a port of 127.0.0.1, on a port of its own, in a thread of its own, while its `with` block runs.

    Every method may be called from any thread, and is in force when it returns.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        """Where new connections go."""
        self.port = free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy of {target}", daemon=True)
        self._door: asyncio.Server | None = None
        self._lines: set[_Line] = set()
        self._weather = _Weather()

    def __enter__(self) -> Self:
        self._thread.start()
        self.pass_()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return self._done(lambda: len(self._lines))

    def pass_(self) -> None:
        """Let everybody through; a connection that has lost bytes is reset."""
        self._done(lambda: self._turn(_Weather()))
        self._open()

    def cut(self) -> None:
        """Reset every connection; new ones are let through as before."""
        self._done(self._cut)

    def refuse(self) -> None:
        """Reset every connection and refuse new ones."""
        self._done(self._close)

    def half_open(self) -> None:
        """Swallow what either side says, and tell neither; new connections are taken and never answered."""
        self._done(lambda: self._turn(_Weather(swallows=True)))
        self._open()

    def delay(self, seconds: float) -> None:
        """Deliver everything so much later, in both directions."""
        self._done(lambda: self._turn(_Weather(delay=seconds)))
        self._open()

    def throttle(self, bytes_per_second: float) -> None:
        """Let each connection carry so much in each direction."""
        self._done(lambda: self._turn(_Weather(rate=bytes_per_second)))
        self._open()

    def _done(self, call: Callable[[], T]) -> T:
        async def called() -> T:
            return call()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(10)

    def _open(self) -> None:
        async def open_() -> None:
            if self._door is None:
                self._door = await self._loop.create_server(lambda: _Line(self).client, HOST, self.port, backlog=512)

        asyncio.run_coroutine_threadsafe(open_(), self._loop).result(10)

    def _close(self) -> None:
        if self._door is not None:
            self._door.close()
            self._door = None
        self._turn(_Weather())
        self._cut()

    def _cut(self) -> None:
        for line in list(self._lines):
            line.cut()

    def _turn(self, weather: _Weather) -> None:
        self._weather = weather
        for line in list(self._lines):
            line.turned()


class _Line:
    """One client's connection and ours to the server for it."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.spoiled = False
        """Bytes were lost: nothing that follows can make sense."""
        self.client = _End(self)
        self.server = _End(self)
        self.client.other, self.server.other = self.server, self.client
        self._calling: asyncio.Task[None] | None = None

    @property
    def weather(self) -> _Weather:
        return self.proxy._weather

    def taken(self) -> None:
        self.proxy._lines.add(self)
        if self.weather.swallows:
            self.spoiled = True
        else:
            self._calling = asyncio.get_running_loop().create_task(self._call())

    async def _call(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.server, HOST, self.proxy.target)
        except OSError:
            self.cut()

    def turned(self) -> None:
        """Follow the weather: what was held back goes its way, what has lost bytes ends."""
        if self.spoiled and not self.weather.swallows:
            self.cut()
            return
        for end in (self.client, self.server):
            end.release()

    def ended(self, end: _End) -> None:
        """Pass the end of one side on to the other, after what it said before."""
        called = self._calling is None or self._calling.done()
        if end.other.is_gone and called:
            self.proxy._lines.discard(self)
        elif self.weather.swallows:
            self.spoiled = True
        else:
            end.other.hold(None)

    def cut(self) -> None:
        self.proxy._lines.discard(self)
        if self._calling is not None:
            self._calling.cancel()
        for end in (self.client, self.server):
            end.reset()


class _End(asyncio.Protocol):
    """One side of a line, and what is held back on its way to it."""

    other: _End

    def __init__(self, line: _Line) -> None:
        self._line = line
        self._transport: asyncio.Transport | None = None
        self._held: deque[tuple[float, bytes | None]] = deque()
        self._bytes = 0
        self._free_at = 0.0

    @property
    def is_gone(self) -> bool:
        return self._transport is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self is self._line.client:
            self._line.taken()
        else:
            self._deliver()

    def data_received(self, data: bytes) -> None:
        if self._line.weather.swallows:
            self._line.spoiled = True
        else:
            self.other.hold(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - an end is an end
        self._transport = None
        self._line.ended(self)

    def pause_writing(self) -> None:
        self.other.rest()

    def resume_writing(self) -> None:
        self.other.read_on()

    def rest(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def hold(self, data: bytes | None) -> None:
        """Deliver as the weather has it; None is the end."""
        weather = self._line.weather
        if weather.is_fair and not self._held and self._transport is not None:
            self._write(data)
            return
        loop = asyncio.get_running_loop()
        due = max(self._free_at, loop.time()) + (len(data or b"") / weather.rate if weather.rate else 0)
        self._free_at = due
        self._held.append((due + weather.delay, data))
        self._bytes += len(data or b"")
        if self._bytes > MOST_HELD:
            self.other.rest()
        loop.call_at(due + weather.delay, self._deliver)

    def release(self) -> None:
        """Deliver at once what is held back, when nothing holds it back any more."""
        if self._line.weather.is_fair:
            self._held = deque((0.0, data) for _, data in self._held)
            self._free_at = 0.0
        self._deliver()

    def _deliver(self) -> None:
        if self._transport is None or self._line.weather.swallows:
            return
        now = asyncio.get_running_loop().time()
        while self._held and self._held[0][0] <= now + 0.0001:
            _, data = self._held.popleft()
            self._bytes -= len(data or b"")
            self._write(data)
        if self._bytes <= MOST_HELD:
            self.other.read_on()

    def _write(self, data: bytes | None) -> None:
        if self._transport is None:
            return
        if data is None:
            self._transport.close()
        else:
            self._transport.write(data)

    def reset(self) -> None:
        """End it with a reset, not with an orderly goodbye."""
        self._held.clear()
        if self._transport is not None:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()
