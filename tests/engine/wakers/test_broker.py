"""A worker behind a pooler, which can receive messages of a bridge and cannot be one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from holdfast.wake import RedisWake
from tests.engine.wakers.fleet import AT_ONCE, Fleet, listening
from tests.engine.wakers.pooler import Pooler
from tests.kit.waiting import until
from tools.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.postgres import Server


@pytest.fixture
def pooler(server: Server) -> Iterator[Pooler]:
    with Pooler(server) as pooler:
        yield pooler


@pytest.fixture
def carrier() -> Iterator[RedisWake]:
    with RedisServer() as redis:
        yield RedisWake(redis.url)


async def test_behind_a_pooler_a_worker_is_no_bridge_and_producers_wake_it(
    database: str, pooler: Pooler, carrier: RedisWake, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with Fleet(pooler.before(database), carrier) as app:
        worker = await app.start("pooled")
        await until(lambda: "behind a pooler this worker cannot listen for its fleet" in caplog.messages)
        assert not listening(worker)
        for number in range(3):
            await app.app.enqueue(app.conn, app.note.new(number))
            assert await app.app.wake("default")
            assert await asyncio.wait_for(app.started.get(), AT_ONCE) == number


async def test_a_worker_that_reaches_the_database_is_the_bridge_of_those_behind_a_pooler(
    database: str, pooler: Pooler, carrier: RedisWake
) -> None:
    async with Fleet(pooler.before(database), carrier) as app:
        worker = await app.start("pooled")
        async with Fleet(database, carrier) as other:
            await other.start("direct", "other")
            await until(lambda: listening(worker))
            await app.woken()
        await until(lambda: not listening(worker))
