"""NATS JetStream with a stream on disk for all that the relay publishes, that can be killed, frozen and read."""

from __future__ import annotations

import json
import os
import signal
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import nats
from nats.errors import Error
from nats.js.errors import NotFoundError

from tools.nats import NatsServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

UNANSWERED = (Error, OSError, TimeoutError)
STREAM = "chaos"
TOPIC = "chaos.published"
# Longer than any run: what was handed over twice is there once.
DUPLICATE_WINDOW = 6 * 3600.0


class Arrival(NamedTuple):
    """A message of the stream."""

    place: int
    event: int
    key: str
    n: int


class Broker(NatsServer):
    """One server under one address; what it has confirmed outlives every kill."""

    def __init__(self) -> None:
        super().__init__(jetstream=True)

    async def __aenter__(self) -> Self:
        self.__enter__()
        await self.empty()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        return self._process is not None

    def kill(self) -> None:
        if self.running:
            self.stop(signal.SIGKILL)

    def restart(self) -> None:
        """Start it again on its store, if it does not run. In the main thread: it ends with the lab."""
        if not self.running:
            self.start()

    def freeze(self) -> None:
        if self.running:
            super().freeze()

    def thaw(self) -> None:
        if self.running:
            os.kill(self.pid, signal.SIGCONT)

    async def empty(self) -> None:
        """Begin with a stream that nothing has arrived in."""
        async with self._context() as context:
            with suppress(NotFoundError):
                await context.delete_stream(STREAM)
            await context.add_stream(name=STREAM, subjects=[f"{TOPIC}.>"], duplicate_window=DUPLICATE_WINDOW)

    async def count(self) -> int:
        async with self._context() as context:
            return int((await context.stream_info(STREAM)).state.messages)

    async def has(self, key: str) -> bool:
        """Tell whether an event of this key has arrived."""
        async with self._context() as context:
            try:
                await context.get_last_msg(STREAM, f"{TOPIC}.{key}")
            except NotFoundError:
                return False
        return True

    async def arrivals(self) -> list[Arrival]:
        """Return all that the stream has, in its order."""
        found: list[Arrival] = []
        async with self._context() as context:
            count = (await context.stream_info(STREAM)).state.messages
            reading: Any = await context.subscribe(f"{TOPIC}.>", ordered_consumer=True) if count else None
            while len(found) < count:
                message = await reading.next_msg(timeout=10)
                headers = message.headers
                event, n = int(headers["holdfast-event-id"]), json.loads(message.data)["n"]
                found.append(Arrival(len(found), event, headers["Holdfast-Key"], n))
        return found

    @asynccontextmanager
    async def _context(self) -> AsyncGenerator[Any, None]:
        """Connect for one question: nothing of a connection is left when the server is killed."""
        client = await nats.connect(self.url, allow_reconnect=False, connect_timeout=3, error_cb=_ignore)
        try:
            yield client.jetstream(timeout=5)
        finally:
            await client.close()


async def _ignore(_error: Exception) -> None:
    """Ignore errors of the client library: the caller gets them as exceptions."""
