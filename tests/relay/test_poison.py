"""Events that a broker refuses: what happens to them, to what follows, and how a person lets them go."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast, Retry
from holdfast._drivers import run
from holdfast._relay import publisher as delivery
from holdfast._relay.message import Refused
from holdfast._relay.sinks.nats import NatsSink
from holdfast._store.subscription import (
    ParkedEvent,
    ReleasedEvents,
    find_subscription,
    list_parked,
    list_subscriptions,
    release_parked,
    released_events,
    replay_subscription,
    settle_parked,
)
from tests.kit.nats import stream
from tests.kit.waiting import until
from tests.relay.ledger import Ledger
from tests.relay.reading import Reader
from tests.relay.test_relays import FAST, SOON, subscribed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from holdfast._relay.message import Message
    from holdfast._relay.subscription import Poison
    from tests.kit.nats import Stream
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


@pytest.mark.nightly
async def test_a_released_key_waits_behind_what_is_refused_again(database: str) -> None:
    refused = {1}
    sink = Ledger(lambda n: Refused("not this one") if n in refused else None)
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    app.relay("out", sold, to=sink, poison="park_key")
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        await app.publish_many(conn, [sold.new({"n": n}, key="a") for n in (1, 2, 3, 4)])
        await _parked(conn, 4)
        refused.symmetric_difference_update({1, 2})
        await _release(conn)
        await until(lambda: sink.asked[-1:] == [2])
        await _parked(conn, 3)
        # Its turn comes again and again, before anything new of its key.
        await app.publish_many(conn, [sold.new({"n": 5}, key="a"), sold.new({"n": 6}, key="b")])
        await until(lambda: 6 in sink.taken)
        await _parked(conn, 4)
        assert sink.taken == [1, 6]
        refused.clear()
        await _release(conn)
        await until(lambda: sink.taken == [1, 6, 2, 3, 4, 5])


async def test_a_parked_event_is_logged_once_with_the_reason(database: str, caplog: pytest.LogCaptureFixture) -> None:
    sink = Ledger(lambda n: Refused("the endpoint answered 404: no such thing") if n == 1 else None)
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    app.relay("out", sold, to=sink, poison="park_key")
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        first, *_ = await app.publish_many(conn, [sold.new({"n": n}, key="a") for n in (1, 2, 3)])
        await _parked(conn, 3)
    [output] = [line for line in caplog.records if line.name == delivery.log.logger.name]
    assert output.levelname == "ERROR"
    assert output.getMessage() == (
        f"an event was parked: see `holdfast events parked out`: attempt=1 subscription=out event={first} "
        'error=Refused why="the endpoint answered 404: no such thing"'
    )


async def _release(conn: psycopg.AsyncConnection[Any]) -> None:
    subscription = await run(conn, find_subscription("out"))
    assert subscription is not None
    await run(conn, release_parked(subscription, key="a"))


async def test_what_did_not_fit_into_the_batch_does_not_overtake_either(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        reader = Reader(conn, "out")
        await reader.join()
        publish = "SELECT holdfast.publish('t', '{}', key => 'a') FROM generate_series(1, 5)"
        ids = [row[0] for row in await (await conn.execute(publish.encode())).fetchall()]
        head = ParkedEvent(ids[0], "a", holds_key=True, attempt=1, error_code="Refused", error="no")
        behind = [ParkedEvent(id_, "a", holds_key=True) for id_ in ids[1:]]
        await reader.park(head, *behind)
        await run(conn, release_parked(reader.subscription))
        assert await _due(reader) == ids[:1]
        await _settle(reader, done=ids[:1])
        assert await _due(reader, limit=3) == ids[1:4]
        # The second of three is refused for a while: neither the third nor what was left out comes before it.
        await _settle(reader, done=ids[1:2], kept=[head._replace(event_id=ids[2], retry_ms=0), behind[2]])
        assert await _due(reader) == ids[2:3]
        await _settle(reader, done=ids[2:3])
        assert await _due(reader) == ids[3:]


@pytest.mark.nightly
async def test_a_long_row_of_followers_is_let_go_in_parts(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        reader = Reader(conn, "out")
        await reader.join()
        rows: dict[str, list[int]] = {}
        for key in "ab":
            publish = "SELECT holdfast.publish('t', '{}', key => %s) FROM generate_series(1, 6002)"
            rows[key] = [row[0] for row in await (await conn.execute(publish.encode(), [key])).fetchall()]
            head = ParkedEvent(rows[key][0], key, holds_key=True, attempt=1, error_code="Refused", error="no")
            await reader.park(head, *(ParkedEvent(id_, key, holds_key=True) for id_ in rows[key][1:]))
        a, b = rows.values()
        await _settle(reader, done=[a[0], b[0]])
        assert await _due(reader, limit=20_000) == a[1:5001] + b[1:5001]
        await _settle(reader, done=a[1:5001] + b[1:5001])
        assert await _due(reader, limit=20_000) == a[5001:] + b[5001:]


async def _due(reader: Reader, *, limit: int = 1_000) -> list[int]:
    released: ReleasedEvents = await run(reader.conn, released_events(reader.subscription, 0, limit=limit))
    return [event[0] for event in released.events]


async def _settle(reader: Reader, *, done: list[int], kept: Sequence[ParkedEvent] = ()) -> None:
    assert await run(
        reader.conn, settle_parked(reader.subscription, reader.worker, reader.held[0], done=done, kept=kept)
    )


@pytest.mark.nightly
async def test_reading_a_parked_event_again_leaves_its_time_alone(database: str) -> None:
    failures = [RuntimeError("not now")]
    later = Retry.table([timedelta(hours=1)], max_attempts=5, jitter=timedelta(0))
    sink = Ledger(lambda n: failures.pop() if n == 1 and failures else None, retry=later)
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    app.relay("out", sold, to=sink, poison="park_key")
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        await app.publish_many(conn, [sold.new({"n": n}, key="a") for n in (1, 2)])
        before = await _parked(conn, 2)
        subscription = await run(conn, find_subscription("out"))
        assert subscription is not None
        await run(conn, replay_subscription(subscription, after=0))
        await until(lambda: _read_up(conn))
        assert await _parked(conn, 2) == before
        await _release(conn)
        await until(lambda: sink.taken == [1, 2])


async def _read_up(conn: psycopg.AsyncConnection[Any]) -> bool:
    [line] = await run(conn, list_subscriptions())
    return line.events == 0


async def test_an_event_that_its_envelope_fails_on_is_poison_alone(database: str) -> None:
    def dressed(message: Message) -> Message:
        if json.loads(message.body)["n"] == 1:
            raise KeyError("tenant")
        return replace(message, key="all")

    sink = Ledger()
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    app.relay("out", sold, to=sink, poison="skip", envelope=dressed)
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        await app.publish_many(conn, [sold.new({"n": n}, key="a") for n in range(3)])
        await until(lambda: sink.taken == [0, 2])
        [line] = await _parked(conn, 1)
    assert (line.key, line.error_code, line.error) == ("a", "Refused", "its envelope failed: KeyError")
