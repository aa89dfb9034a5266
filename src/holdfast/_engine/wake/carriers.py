"""Brokers that carry wake-ups: short messages to current subscribers, stored nowhere. Redis and NATS are extras."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from holdfast._distribution import require
from holdfast._logs.log import Log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

log = Log(__name__)

# A broker without an answer for this many seconds counts as down.
PATIENCE = 2.0

_NAME = re.compile(r"[A-Za-z0-9_-]{1,50}")


class CarrierSession(Protocol):
    """One connection to a broker. Any exception means that the connection is lost."""

    async def subscribe(self, *channels: str) -> None: ...

    async def unsubscribe(self, channel: str) -> None: ...

    async def publish(self, channel: str, text: str) -> None: ...

    async def run(self) -> None:
        """Receive until the connection is lost, then raise."""


class Carrier(ABC):
    """A broker and its address. `name` is the prefix of every channel; one broker may serve several names."""

    needs: ClassVar[tuple[str, str, str]]
    """The broker's name, the extra to install, and its library."""

    def __init__(self, url: str, *, name: str = "holdfast") -> None:
        broker, extra, library = self.needs
        require(f"a carrier of wake-ups over {broker}", extra, library)  # noticed at once, not by a worker that polls
        if not _NAME.fullmatch(name):
            raise ValueError(f"the name {name!r} is not 1 to 50 letters, digits, hyphens and underscores")
        self.url = url
        self.name = name

    @property
    def open_channel(self) -> str:
        """The channel on which producers announce commits; every worker of this name subscribes to it."""
        return f"{self.name}.wake"

    @abstractmethod
    def open(self, on_message: Callable[[str, bytes], None]) -> AbstractAsyncContextManager[CarrierSession]:
        """Connect once, without retries. `on_message(channel, data)` is called while `run` runs."""

    async def wake(self, *queues: str) -> bool:
        """Wake all sleepers of these queues, or of all. Return False if the broker is unreachable: workers poll."""
        try:
            async with asyncio.timeout(PATIENCE), self.open(_ignore) as session:
                for queue in queues or ("",):
                    await session.publish(self.open_channel, queue)
        except Exception as exc:  # noqa: BLE001 - the job is committed: no broker error may fail the call
            log.warning("no worker could be woken, polling goes on", extra={"error": type(exc).__name__})
            return False
        return True


def _ignore(_channel: str, _data: bytes) -> None:
    pass


class RedisWake(Carrier):
    """`Holdfast(url, wake=RedisWake("redis://127.0.0.1"))`. Two connections to Redis for each worker and database."""

    needs: ClassVar[tuple[str, str, str]] = ("Redis", "redis", "redis.asyncio")

    def __init__(self, url: str, *, name: str = "holdfast") -> None:
        super().__init__(url, name=name)
        from redis.asyncio.connection import parse_url

        parse_url(url)  # raises on an invalid URL

    @asynccontextmanager
    async def open(self, on_message: Callable[[str, bytes], None]) -> AsyncIterator[CarrierSession]:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        # The library would reconnect silently, and messages sent meanwhile would be lost unnoticed.
        client = Redis.from_url(
            self.url, retry=Retry(NoBackoff(), 0), socket_connect_timeout=PATIENCE, socket_timeout=PATIENCE
        )
        async with client, client.pubsub() as pubsub:
            yield _RedisWakeSession(client, pubsub, on_message)


class _RedisWakeSession:
    def __init__(self, client: Any, pubsub: Any, on_message: Callable[[str, bytes], None]) -> None:
        self._client = client
        self._pubsub = pubsub
        self._on_message = on_message
        self._subscribed = asyncio.Event()

    async def subscribe(self, *channels: str) -> None:
        await self._pubsub.subscribe(*channels)

    async def unsubscribe(self, channel: str) -> None:
        await self._pubsub.unsubscribe(channel)

    async def publish(self, channel: str, text: str) -> None:
        # Publishing uses another connection, which might be faster than the subscription.
        if self._pubsub.subscribed:
            async with asyncio.timeout(PATIENCE):
                await self._subscribed.wait()
        await self._client.publish(channel, text)

    async def run(self) -> None:
        while True:
            message = await self._pubsub.get_message(timeout=PATIENCE)
            if message is None:
                continue
            if message["type"] == "subscribe":
                self._subscribed.set()
            elif message["type"] == "message":
                self._on_message(message["channel"].decode(errors="replace"), message["data"])


class NatsWake(Carrier):
    """`Holdfast(url, wake=NatsWake("nats://127.0.0.1"))`; several addresses are separated by commas."""

    needs: ClassVar[tuple[str, str, str]] = ("NATS", "nats", "nats")

    @asynccontextmanager
    async def open(self, on_message: Callable[[str, bytes], None]) -> AsyncIterator[CarrierSession]:
        from nats.aio.client import Client

        client = Client()
        lost = asyncio.Event()

        async def closed() -> None:
            lost.set()

        try:
            async with asyncio.timeout(PATIENCE):
                await client.connect(
                    self.url.split(","),
                    name=self.name,
                    # The library would reconnect silently, and messages sent meanwhile would be lost unnoticed.
                    allow_reconnect=False,
                    # Do not retry a server that refuses: the caller decides about that.
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=int(PATIENCE),
                    ping_interval=5,
                    closed_cb=closed,
                    error_cb=_ignore_error,
                )
            yield _NatsWakeSession(client, lost, on_message)
            await client.flush(int(PATIENCE))
        finally:
            await client.close()


class _NatsWakeSession:
    def __init__(self, client: Any, lost: asyncio.Event, on_message: Callable[[str, bytes], None]) -> None:
        self._client = client
        self._lost = lost
        self._on_message = on_message
        self._subscriptions: dict[str, Any] = {}

    async def subscribe(self, *channels: str) -> None:
        for channel in channels:
            self._subscriptions[channel] = await self._client.subscribe(channel, cb=self._receive)

    async def unsubscribe(self, channel: str) -> None:
        await self._subscriptions.pop(channel).unsubscribe()

    async def publish(self, channel: str, text: str) -> None:
        await self._client.publish(channel, text.encode())

    async def run(self) -> None:
        await self._lost.wait()
        raise ConnectionError("the connection to NATS is lost")

    async def _receive(self, message: Any) -> None:
        self._on_message(message.subject, message.data)


async def _ignore_error(_error: Exception) -> None:
    """Ignore the error: the end of the connection is noticed separately."""
