"""A sink's connection goes on, whatever ends it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from holdfast._relay.message import Unavailable
from holdfast._relay.sinks.session import keep
from tests.kit.waiting import until
from tests.relay.sinks.publishing import a_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast._relay.message import Message, Publish
    from holdfast._relay.sinks.session import BrokerSession

SECONDS = 5.0


class Broker:
    """Takes what is published. `ends` ends its connections, and `trouble` is raised when one is made."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.connections = 0
        self.trouble: BaseException | None = None
        self.ends = asyncio.Event()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[BrokerSession]:
        if self.trouble is not None:
            raise self.trouble
        self.connections += 1
        yield self

    async def publish(self, message: Message) -> None:
        self.taken.append(message)

    async def lost(self) -> None:
        await self.ends.wait()


async def _is_unavailable(publish: Publish) -> bool:
    try:
        await publish(a_message())
    except Unavailable:
        return True
    return False


def connection() -> asyncio.Task[None]:
    (found,) = [task for task in asyncio.all_tasks() if task.get_name() == "holdfast-sink connection broker"]
    return found


@pytest.mark.parametrize("error", [SystemExit("struck"), RuntimeError("struck"), asyncio.CancelledError("struck")])
async def test_whatever_a_brokers_library_raises_it_is_connected_again(error: BaseException) -> None:
    broker = Broker()
    async with keep("broker", broker.connect, seconds=SECONDS) as publish:
        await publish(a_message())
        broker.trouble = error
        broker.ends.set()
        await until(partial(_is_unavailable, publish))
        broker.trouble = None
        broker.ends.clear()
        await until(lambda: broker.connections == 2)
        await publish(a_message())
    assert len(broker.taken) >= 2


async def test_a_connection_cancelled_from_outside_is_opened_again(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    async with keep("broker", broker.connect, seconds=SECONDS) as publish:
        connection().cancel()
        await until(lambda: broker.connections == 2)
        await publish(a_message())
    assert [getattr(r, "sink", "") for r in caplog.records if "loop of the worker ended" in r.message] == ["broker"]


async def test_it_ends_with_its_sink() -> None:
    broker = Broker()
    async with keep("broker", broker.connect, seconds=SECONDS):
        task = connection()
    assert task.done()
    assert broker.connections == 1
