"""Events that a broker refuses: what happens to them, to what follows, and how a person lets them go."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.drivers import run
from holdfast.relay.sinks.nats import NatsSink
from holdfast.store.subscription import find_subscription, list_parked, release_parked
from tests.relay.conftest import stream
from tests.relay.test_relays import FAST, SOON, subscribed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.relay.subscription import Poison
    from tests.relay.conftest import Stream
    from tools.nats import NatsServer

LIMIT = 400


@pytest.fixture
async def narrow(nats_server: NatsServer) -> AsyncIterator[Stream]:
    """A stream that refuses what is long."""
    async with stream(nats_server, "narrow", "shop.>", max_msg_size=LIMIT) as made:
        yield made


async def _relayed(
    database: str, server: NatsServer, poison: Poison
) -> tuple[Holdfast, Any, psycopg.AsyncConnection[Any]]:
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    app.relay("out", sold, to=NatsSink(server.url), poison=poison)
    return app, sold, await psycopg.AsyncConnection.connect(database, autocommit=True)


async def _publish(app: Holdfast, topic: Any, conn: Any, *events: tuple[str, int]) -> list[int]:
    """Publish events of these keys; 1 stands for one that is too long."""
    news = [
        topic.new({"n": place, "pad": "x" * (2 * LIMIT * long)}, key=key) for place, (key, long) in enumerate(events)
    ]
    return await app.publish_many(conn, news)


def _ids(messages: list[Any]) -> list[int]:
    return [int(message.headers["holdfast-event-id"]) for message in messages]


async def _parked(conn: psycopg.AsyncConnection[Any], count: int) -> list[Any]:
    subscription = await run(conn, find_subscription("out"))
    assert subscription is not None
    async with asyncio.timeout(SOON):
        while len(found := await run(conn, list_parked(subscription))) != count:  # noqa: ASYNC110 - a database is asked
            await asyncio.sleep(0.02)
    return found


async def test_skipped_is_set_aside_alone(database: str, nats_server: NatsServer, narrow: Stream) -> None:
    app, sold, conn = await _relayed(database, nats_server, "skip")
    async with conn, app.worker(**FAST):
        await subscribed(conn, 1)
        ids = await _publish(app, sold, conn, ("a", 0), ("a", 1), ("a", 0), ("b", 0))
        messages = await narrow.wait_for(3)
        [line] = await _parked(conn, 1)
    assert sorted(_ids(messages)) == [ids[0], ids[2], ids[3]]
    assert (line.event_id, line.key, line.holds_key, line.error_code) == (ids[1], "a", False, "Refused")


async def test_a_parked_key_waits_and_is_released_in_order(
    database: str, nats_server: NatsServer, narrow: Stream
) -> None:
    app, sold, conn = await _relayed(database, nats_server, "park_key")
    async with conn, app.worker(**FAST):
        await subscribed(conn, 1)
        ids = await _publish(app, sold, conn, ("a", 0), ("a", 1), ("a", 0), ("b", 0))
        assert sorted(_ids(await narrow.wait_for(2))) == [ids[0], ids[3]]
        assert [line.event_id for line in await _parked(conn, 2)] == ids[1:3]
        # What comes later for the key is parked behind them.
        later = await _publish(app, sold, conn, ("a", 0), ("b", 0))
        await narrow.wait_for(3)
        lines = await _parked(conn, 3)
        assert [(line.event_id, line.error_code) for line in lines] == [
            (ids[1], "Refused"),
            (ids[2], None),
            (later[0], None),
        ]
        await narrow.update(max_msg_size=-1)
        subscription = await run(conn, find_subscription("out"))
        assert subscription is not None
        assert await run(conn, release_parked(subscription, key="a")) == 3
        messages = await narrow.wait_for(6)
        await _parked(conn, 0)
        of_key = [id_ for id_ in _ids(messages) if id_ not in {ids[3], later[1]}]
        assert of_key == [*ids[:3], later[0]]
        # And the key is as good as any other again.
        last = await _publish(app, sold, conn, ("a", 0))
        assert _ids(await narrow.wait_for(7))[-1] == last[0]


async def test_a_blocked_partition_waits_for_its_head(database: str, nats_server: NatsServer, narrow: Stream) -> None:
    app, sold, conn = await _relayed(database, nats_server, "block")
    async with conn, app.worker(**FAST):
        await subscribed(conn, 1)
        ids = await _publish(app, sold, conn, ("a", 1), ("a", 0), ("b", 0))
        assert _ids(await narrow.wait_for(1)) == [ids[2]]
        after = await _publish(app, sold, conn, ("c", 0))
        await narrow.update(max_msg_size=-1)
        messages = await narrow.wait_for(4)
        assert _ids(messages) == [ids[2], *ids[:2], *after]
        assert await _parked(conn, 0) == []
    assert json.loads(messages[0].data)["n"] == 2
