"""A broker for tests: a stream of NATS JetStream, and all that has arrived there."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tools.nats import NatsServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    with NatsServer(jetstream=True) as server:
        yield server


class Stream:
    """The messages of a stream, in its order."""

    def __init__(self, context: Any, name: str, subjects: str) -> None:
        self._context = context
        self._subjects = subjects
        self._name = name

    async def wait_for(self, count: int, seconds: float = 20) -> list[Any]:
        """Return the messages when there are so many."""
        async with asyncio.timeout(seconds):
            while (await self._context.stream_info(self._name)).state.messages < count:  # noqa: ASYNC110 - a broker is asked
                await asyncio.sleep(0.005)
        return await self.messages()

    async def update(self, **config: Any) -> None:
        await self._context.update_stream((await self._context.stream_info(self._name)).config, **config)

    async def messages(self) -> list[Any]:
        found: list[Any] = []
        state = (await self._context.stream_info(self._name)).state
        if not state.messages:
            return found
        reading = await self._context.subscribe(self._subjects, ordered_consumer=True)
        while len(found) < state.messages:
            found.append(await reading.next_msg(timeout=5))
        await reading.unsubscribe()
        return found


@asynccontextmanager
async def stream(server: NatsServer, name: str, subjects: str, **config: Any) -> AsyncIterator[Stream]:
    import nats

    client = await nats.connect(server.url)
    try:
        context = client.jetstream()
        await context.add_stream(name=name, subjects=[subjects], **config)
        try:
            yield Stream(context, name, subjects)
        finally:
            await context.delete_stream(name)
    finally:
        await client.close()
