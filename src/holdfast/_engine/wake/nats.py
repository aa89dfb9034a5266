"""Wake-ups over NATS: core subjects, nothing stored. Needs the extra `holdfast[nats]`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from holdfast._engine.wake.carrier import PATIENCE, Carrier, CarrierSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class NatsWake(Carrier):
    """`Holdfast(url, wake=NatsWake("nats://127.0.0.1"))`; several addresses are separated by commas."""

    def __init__(self, url: str, *, name: str = "holdfast") -> None:
        super().__init__(url, name=name)
        try:
            import nats  # noqa: F401 - missing libraries are noticed at once, not by a worker that polls
        except ImportError as exc:
            raise ImportError("wake-ups over NATS need the extra: pip install holdfast[nats]") from exc

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
                    error_cb=_ignore,
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


async def _ignore(_error: Exception) -> None:
    """Ignore the error: the end of the connection is noticed separately."""
