"""Wake-ups over Redis: publish and subscribe, nothing stored. Needs the extra `holdfast[redis]`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from holdfast._engine.wake.carrier import PATIENCE, Carrier, CarrierSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class RedisWake(Carrier):
    """`Holdfast(url, wake=RedisWake("redis://127.0.0.1"))`. Two connections to Redis for each worker and database."""

    def __init__(self, url: str, *, name: str = "holdfast") -> None:
        super().__init__(url, name=name)
        try:
            import redis.asyncio as client
        except ImportError as exc:
            raise ImportError("wake-ups over Redis need the extra: pip install holdfast[redis]") from exc
        client.connection.parse_url(url)  # raises on an invalid URL

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
