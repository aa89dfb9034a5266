"""Four processes that share a relay, of which one is killed."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast
from tests.kit.waiting import Stopwatch
from tests.relay.replica import LEASE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kit.nats import Stream
    from tools.nats import NatsServer

pytestmark = pytest.mark.nightly

SOON = 40.0
# For so long the server may stand still besides.
STALL = 5.0
HOLDERS = """
    SELECT w.name, count(*) FROM generate_series(0, 3) AS k, holdfast.position_of(1, k) AS p
    JOIN holdfast.worker w ON w.id = p.locked_by GROUP BY 1 ORDER BY 1
"""


@pytest.fixture
async def replicas(database: str, nats_server: NatsServer) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    command = [sys.executable, "-m", "tests.relay.replica", database, nats_server.url]
    started = [await asyncio.create_subprocess_exec(*command, f"r{n}") for n in range(4)]
    yield started
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _holders(conn: psycopg.AsyncConnection[Any]) -> dict[str, int]:
    return dict(await (await conn.execute(HOLDERS.encode())).fetchall())


async def test_partitions_of_the_dead_move_and_order_holds(
    database: str, nats_server: NatsServer, shop: Stream, replicas: list[asyncio.subprocess.Process]
) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    published: list[int] = []

    async def produce(stop: asyncio.Event) -> None:
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
            number = 0
            while not stop.is_set():
                batch = [sold.new({"n": number + n}, key=str((number + n) % 17)) for n in range(20)]
                published.extend(await app.publish_many(conn, batch))
                number += 20
                await asyncio.sleep(0.02)

    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn, asyncio.timeout(SOON):
        # Each has its fair share.
        while await _holders(conn) != {"r0": 1, "r1": 1, "r2": 1, "r3": 1}:  # noqa: ASYNC110 - a database is asked
            await asyncio.sleep(0.02)
        stop = asyncio.Event()
        producing = asyncio.create_task(produce(stop))
        await shop.wait_for(200)
        replicas[0].kill()
        async with Stopwatch() as watch:
            while "r0" in (held := await _holders(conn)) or sum(held.values()) < 4:  # noqa: ASYNC110 - a database is asked
                await asyncio.sleep(0.01)
        before = len(published)
        while len(published) < before + 400:  # noqa: ASYNC110 - what is done meanwhile is the point
            await asyncio.sleep(0.02)
        stop.set()
        await producing
        messages = await shop.wait_for(len(published))
    assert watch.seconds <= LEASE.total_seconds() + 2 + STALL
    ids = [int(message.headers["holdfast-event-id"]) for message in messages]
    assert sorted(ids) == published
    keys = {event: place % 17 for place, event in enumerate(published)}
    for key in range(17):
        of_key = [event for event in ids if keys[event] == key]
        assert of_key == sorted(of_key)
