"""A partition that is lost and comes back is served anew, whatever became of whoever served it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast import Holdfast
from tests.relay.test_relays import FAST, SOON, subscribed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.relay.message import Message, Publish

THIEF = 10**9
_HELD = "SELECT p.locked_by = %(thief)s FROM holdfast.position_of(1, 0) AS p"


class Hanging:
    """A sink that never answers to the first message, and confirms the others."""

    name = "hanging"

    def __init__(self) -> None:
        self.asked: asyncio.Queue[str] = asyncio.Queue()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Publish]:
        yield self._publish

    async def _publish(self, message: Message) -> None:
        first = not hasattr(self, "_first")
        self._first = message.id
        self.asked.put_nowait(message.id)
        if first:
            await asyncio.Event().wait()


async def test_who_hangs_keeps_nobody_from_serving_the_partition(database: str) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    sink = Hanging()
    app.relay("out", sold, to=sink, partitions=1, lease=FAST["lease"])
    async with (
        asyncio.timeout(SOON),
        app.worker(**FAST),
        await psycopg.AsyncConnection.connect(database, autocommit=True) as conn,
    ):
        await subscribed(conn, 1)
        await app.publish(conn, sold.new({}))
        asked = await sink.asked.get()
        await _steal(conn)
        await conn.execute("SELECT holdfast.leave_subscription(1, %s)", [THIEF])
        assert await sink.asked.get() == asked


async def _steal(conn: psycopg.AsyncConnection[Any]) -> None:
    """Take the partition as if the lease of its holder had run out, who renews it all the time."""
    while True:
        async with conn.transaction():
            await conn.execute("DELETE FROM holdfast.member")
            await conn.execute("SELECT holdfast.join_subscription(1, %s, 60000)", [THIEF])
        row = await (await conn.execute(_HELD, {"thief": THIEF})).fetchone()
        assert row is not None
        if row[0]:
            return
