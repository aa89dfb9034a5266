"""Subscriptions at work: events that become jobs, and events that go out to a real broker."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Event, Holdfast, InvalidEvent, Job
from holdfast._relay.sinks.nats import NatsSink
from tests.kit.waiting import until
from tests.relay.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from holdfast._relay.message import Publish
    from tests.kit.nats import Stream
    from tools.nats import NatsServer

SOON = 20.0
FAST: dict[str, Any] = {
    "lease": timedelta(seconds=6),
    "heartbeat": timedelta(milliseconds=500),
    "reap_interval": timedelta(milliseconds=300),
    "shutdown_timeout": timedelta(seconds=1),
    "idle_min": timedelta(milliseconds=20),
    "idle_max": timedelta(milliseconds=100),
}


@dataclass(frozen=True)
class Paid:
    invoice: int
    amount: int = 0


async def test_an_event_becomes_a_job_for_each_subscriber(database: str) -> None:
    app = Holdfast(database)
    paid = app.event("invoice.paid", Paid)
    booked: asyncio.Queue[tuple[str, Event[Paid]]] = asyncio.Queue()

    @app.on(paid, name="ledger")
    async def book(job: Job[None], event: Event[Paid]) -> None:
        booked.put_nowait(("ledger", event))

    @app.on(paid, name="mail")
    async def mail(job: Job[None], event: Event[Paid]) -> None:
        booked.put_nowait(("mail", event))

    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database) as conn:
        await subscribed(conn, 2)
        id_ = await app.publish(conn, paid.new(Paid(7, 5), key="7", headers={"by": "me"}))
        await conn.commit()
        async with asyncio.timeout(SOON):
            got = dict([await booked.get(), await booked.get()])
        assert got.keys() == {"ledger", "mail"}
        event = got["ledger"]
        assert (event.id, event.topic, event.payload, event.key, event.headers) == (
            id_,
            "invoice.paid",
            Paid(7, 5),
            "7",
            {"by": "me"},
        )
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await booked.get()


async def test_what_is_rolled_back_was_never_published(
    database: str, nats_server: NatsServer, shop: Stream, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", Paid)
    app.relay("out", sold, to=NatsSink(nats_server.url))
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database) as conn:
        await subscribed(conn, 1)
        await app.publish(conn, sold.new(Paid(1)))
        await conn.rollback()
        first = await app.publish(conn, sold.new(Paid(2), key="k"))
        await conn.commit()
        [message] = await shop.wait_for(1)
    assert message.subject == "shop.sold"
    assert message.data == b'{"invoice":2,"amount":0}'
    assert message.headers["holdfast-event-id"] == str(first)
    assert message.headers["Nats-Msg-Id"].endswith(f"-{first}")
    state = connect().execute("SELECT runner, counts FROM holdfast.run WHERE runner = 'relay'").fetchall()
    assert state in ([], [("relay", {"out": 1})])


async def test_events_of_a_key_go_out_in_order(database: str, nats_server: NatsServer, shop: Stream) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", Paid)
    app.relay("out", sold, to=NatsSink(nats_server.url), partitions=3)
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database) as conn:
        await subscribed(conn, 1)
        for batch in range(10):
            events = [sold.new(Paid(batch * 100 + n), key=str(n % 7)) for n in range(100)]
            await app.publish_many(conn, events)
            await conn.commit()
        messages = await shop.wait_for(1000)
    assert len(messages) == 1000
    for key in range(7):
        ids = [
            int(message.headers["holdfast-event-id"])
            for message in messages
            if (int(message.headers["holdfast-event-id"]) - 1) % 100 % 7 == key
        ]
        assert ids == sorted(ids)
        assert ids


async def test_headers_from_sql_are_texts_and_go_out(database: str, nats_server: NatsServer, shop: Stream) -> None:
    app = Holdfast(database)
    app.relay("out", app.event("shop.sold", Paid), to=NatsSink(nats_server.url))
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        for refused in ("[1]", '{"n": 7}'):
            with pytest.raises(psycopg.Error, match=r"^headers: "):
                await conn.execute("SELECT holdfast.publish('shop.sold', '{}', headers => %s)", [refused])
        await conn.execute("SELECT holdfast.publish('shop.sold', '{}', headers => '{\"n\": \"7\"}')")
        [message] = await shop.wait_for(1)
    assert message.headers["n"] == "7"


async def test_one_that_is_deleted_in_use_begins_anew(database: str, nats_server: NatsServer, shop: Stream) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", Paid)
    app.relay("out", sold, to=NatsSink(nats_server.url))
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        await conn.execute("DELETE FROM holdfast.position")
        await conn.execute("DELETE FROM holdfast.subscription")
        await subscribed(conn, 1)
        await app.publish(conn, sold.new(Paid(1)))
        assert len(await shop.wait_for(1)) == 1


async def test_a_graceful_stop_publishes_the_events_already_read(
    database: str, nats_server: NatsServer, shop: Stream
) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", Paid)
    app.relay("out", sold, to=NatsSink(nats_server.url), start="beginning")
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        for batch in range(4):
            await app.publish_many(conn, [sold.new(Paid(batch * 1500 + n), key=str(n % 7)) for n in range(1500)])
        async with app.worker(**FAST):
            await shop.wait_for(1)
        # What was confirmed is stored: whoever comes next begins there, and nothing comes twice.
        taken = len(await shop.messages())
        row = await (await conn.execute("SELECT last_id FROM holdfast.position_of(1, 0)")).fetchone()
        assert row is not None
        assert row[0] in {taken, None}
        assert row[0] is not None or taken == 6000


async def test_an_event_that_does_not_fit_its_topic_is_refused(database: str) -> None:
    app = Holdfast(database)
    paid = app.event("invoice.paid", Paid)
    with pytest.raises(InvalidEvent, match=r"invoice\.paid"):
        paid.new({"invoice": "seven"})  # type: ignore[arg-type]
    with pytest.raises(InvalidEvent, match="key"):
        paid.new(Paid(1), key="")


async def subscribed(conn: psycopg.AsyncConnection[Any], count: int) -> None:
    """Wait until so many subscriptions are there and held: from now on nothing is missed."""
    held = "SELECT count(DISTINCT subscription_id) FROM holdfast.position WHERE locked_by IS NOT NULL"
    async with asyncio.timeout(SOON):
        while True:
            row = await (await conn.execute(held.encode())).fetchone()
            await conn.commit()
            if row is not None and row[0] >= count:
                return
            await asyncio.sleep(0.01)


async def test_a_sink_that_loses_its_own_database_is_tried_ever_more_rarely_and_said_once(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    opened: list[float] = []

    class Lost(Ledger):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[Publish]:
            opened.append(asyncio.get_running_loop().time())
            if len(opened) <= 6:
                raise psycopg.OperationalError("the sink's database is gone")
            async with super().open() as publish:
                yield publish

    app, sink = Holdfast(database), Lost()
    sold = app.event("shop.sold", dict)
    app.relay("out", sold, to=sink)
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        await app.publish(conn, sold.new({"n": 1}))
        await until(lambda: sink.taken == [1])
    [line] = [each for each in caplog.records if each.name == "holdfast.consumer" and each.levelname == "WARNING"]
    assert line.message.startswith("a partition stopped, and is tried again")
    pauses = [after - before for before, after in itertools.pairwise(opened[:7])]
    assert pauses[-1] > 2 * pauses[0]


async def test_a_position_that_cannot_be_stored_stops_no_other_partition(database: str) -> None:
    """Its partition starts from the stored one again and again; each event of the other is delivered once."""
    app, sink = Holdfast(database), Ledger()
    sold = app.event("shop.sold", dict)
    app.relay("out", sold, to=sink, partitions=2)
    async with app.worker(**FAST), await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await subscribed(conn, 1)
        await conn.execute(
            "CREATE FUNCTION poisoned() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not with us'; END $$;"
            "CREATE TRIGGER poisoned BEFORE INSERT ON holdfast.position FOR EACH ROW"
            " WHEN (NEW.partition = 0) EXECUTE FUNCTION poisoned()"
        )
        await app.publish_many(conn, [sold.new({"n": n}, key=str(n % 20)) for n in range(20)])
        await until(lambda: max(Counter(sink.taken).values(), default=0) > 2)
        await app.publish_many(conn, [sold.new({"n": n}, key=str(n % 20)) for n in range(20, 40)])
        await until(lambda: len({*sink.taken}) == 40)
        again = 2 * max(Counter(sink.taken).values())
        await until(lambda: max(Counter(sink.taken).values()) > again)
    once = {n for n, count in Counter(sink.taken).items() if count == 1}
    assert once & {*range(20)}
    assert once & {*range(20, 40)}
