"""A partition that is lost and comes back is served again, whatever became of the task that served it."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast, Retry
from holdfast._drivers import run
from holdfast._relay.message import Refused, Unavailable
from holdfast._store.subscription import list_subscriptions, pause_subscription
from tests.kit.waiting import after, until
from tests.relay.ledger import Ledger
from tests.relay.test_relays import FAST, SOON, subscribed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from holdfast._relay.message import Message, Publish

THIEF = 10**9
BRIEF = timedelta(seconds=1.2)
ONCE = Retry(max_attempts=1)
_HELD = "SELECT p.locked_by = %(thief)s FROM holdfast.position_of(1, 0) AS p"


class Hanging:
    """A sink that never answers to the first message, and confirms the others."""

    name = "hanging"

    def __init__(self) -> None:
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self._hangs = True

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Publish]:
        yield self._publish

    async def _publish(self, message: Message) -> None:
        hangs, self._hangs = self._hangs, False
        self.asked.put_nowait(message.id)
        if hangs:
            await asyncio.Event().wait()


async def test_a_hanging_task_does_not_block_its_partition(database: str) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    sink = Hanging()
    app.relay("out", sold, to=sink, partitions=1, lease=BRIEF)
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


@pytest.mark.parametrize("trouble", ["away", "refused", "slow"])
async def test_a_paused_subscription_starts_no_attempt(database: str, trouble: str) -> None:
    errors: dict[str, Exception] = {"away": Unavailable("away"), "refused": Refused("not this one")}
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    sink = Ledger(lambda _: errors.get(trouble), seconds=3600 if trouble == "slow" else 0)
    app.relay("out", sold, to=sink)
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        await app.publish_many(conn, [sold.new({"n": n}, key="a") for n in range(3)])
        await until(lambda: sink.asked)
        await run(conn, pause_subscription(1, paused=True))
        await until(lambda: _is_free(conn))
        asked = len(sink.asked)
        errors.clear()
        sink.seconds = 0
        await after(2)
        assert (len(sink.asked), sink.taken) == (asked, [])
        await run(conn, pause_subscription(1, paused=False))
        await until(lambda: sink.taken == [0, 1, 2])


async def test_while_a_sink_is_away_all_events_wait_and_no_attempt_counts(database: str) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    sink = Ledger(lambda n: Unavailable("away") if n == 0 and sink.asked.count(0) <= 4 else None, retry=ONCE)
    app.relay("out", sold, to=sink, poison="skip", window=1)
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        await app.publish_many(conn, [sold.new({"n": n}) for n in range(3)])
        await until(lambda: len(sink.taken) == 3)
    assert (sink.asked, sink.taken) == ([0, 0, 0, 0, 0, 1, 2], [0, 1, 2])


async def test_a_window_is_in_flight_and_one_of_each_key(database: str) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    sink = Ledger(seconds=3600)
    app.relay("out", sold, to=sink)
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        # Two events of each key, one after the other.
        await app.publish_many(conn, [sold.new({"n": n}, key=str(n // 2)) for n in range(600)])
        await until(lambda: len(sink.in_flight) == 256)
        await after(2)
        assert sink.in_flight == set(range(0, 512, 2))
        sink.seconds = 0


async def _is_free(conn: psycopg.AsyncConnection[Any]) -> bool:
    [line] = await run(conn, list_subscriptions())
    return line.worker is None


class Closed:
    """A sink that cannot be opened."""

    name = "closed"

    def __init__(self) -> None:
        self.opened: list[float] = []

    def open(self) -> AbstractAsyncContextManager[Publish]:
        self.opened.append(time.monotonic())
        raise RuntimeError("no such key file")


async def test_a_partition_that_fails_again_and_again_is_tried_less_and_less_often(database: str) -> None:
    app = Holdfast(database)
    sink = Closed()
    app.relay("out", app.event("shop.sold", dict), to=sink, lease=timedelta(minutes=1))
    async with app.worker(**FAST):
        await until(lambda: len(sink.opened) >= 6)
    # At the least half of 0.2, 0.4, 0.8, 1 and 1 s.
    assert sink.opened[5] - sink.opened[0] > 1.5


async def test_unserved_partitions_above_the_share_are_given_up(database: str) -> None:
    """As after an outage: the task that served it ended without being able to give it up."""
    app = Holdfast(database)
    sink = Closed()
    app.relay("out", app.event("shop.sold", dict), to=sink, partitions=4, lease=timedelta(minutes=1))
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await until(lambda: len(sink.opened) >= 4)
        await until(lambda: _others_share(conn))


async def _others_share(conn: psycopg.AsyncConnection[Any]) -> bool:
    """Take part as another, and tell whether half of the partitions are ours."""
    await conn.execute("SELECT holdfast.join_subscription(1, %s, 60000)", [THIEF])
    query = "SELECT count(*) FROM generate_series(0, 3) AS k, holdfast.position_of(1, k) AS p WHERE p.locked_by = %s"
    row = await (await conn.execute(query, [THIEF])).fetchone()
    return row == (2,)
