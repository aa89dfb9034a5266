"""A relay reads the topics and partitions that its subscription has now, not those of the relay's start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Event, Holdfast, Job
from holdfast._drivers import run
from holdfast._store.subscription import find_subscription, repartition_subscription
from tests.kit.waiting import until
from tests.relay.ledger import Ledger
from tests.relay.reading import Reader
from tests.relay.test_relays import FAST, subscribed

if TYPE_CHECKING:
    import psycopg

_HELD = "SELECT count(worker_id) FROM holdfast.lag()"


@pytest.mark.parametrize("parts", [2, 8])
async def test_a_worker_goes_on_with_the_new_number_of_partitions(
    database: str, conn: psycopg.AsyncConnection[Any], parts: int
) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    sink = Ledger()
    app.relay("out", sold, to=sink, partitions=4)
    async with app.worker(**FAST):
        await subscribed(conn, 1)
        subscription = await run(conn, find_subscription("out"))
        assert subscription is not None
        assert await run(conn, repartition_subscription(subscription, partitions=parts))
        await until(lambda: _held(conn, parts))
        await app.publish_many(conn, [sold.new({"n": n}, key=str(n)) for n in range(40)])
        await until(lambda: {*sink.taken} == {*range(40)})


async def _held(conn: psycopg.AsyncConnection[Any], parts: int) -> bool:
    return await (await conn.execute(_HELD.encode())).fetchone() == (parts,)


async def test_a_new_member_gets_the_partitioning(conn: psycopg.AsyncConnection[Any]) -> None:
    reader = Reader(conn, "cut", partitions=3)
    reader.topics = ("sold", "sent")
    joined = await reader.join()
    assert (joined.partitions, joined.topics) == (3, ("sold", "sent"))
    await run(conn, repartition_subscription(reader.subscription, partitions=2))
    joined = await reader.join()
    assert (joined.partitions, [held.partition for held in joined.held]) == (2, [0, 1])


async def test_a_member_with_other_topics_loses_its_partitions(conn: psycopg.AsyncConnection[Any]) -> None:
    old = Reader(conn, "out", worker=1)
    old.topics = ("sold",)
    await old.join()
    page = await old.page()
    new = Reader(conn, "out", worker=2)
    new.topics = ("sold", "sent")
    await new.join()
    await conn.execute("SELECT holdfast.publish('sent', '{}')")
    assert not await old.advance(page)
    assert [event.topic for event in await new.read()] == ["sent"]
    # Who starts with the same topics disturbs nobody.
    page = await new.page()
    third = Reader(conn, "out", worker=3)
    third.topics = new.topics
    await third.join()
    assert await new.advance(page)


async def test_a_topic_that_a_newer_application_adds_is_read_by_the_older_one_too(
    database: str, conn: psycopg.AsyncConnection[Any]
) -> None:
    sink = Ledger()
    old, new = Holdfast(database), Holdfast(database)
    old.relay("out", old.event("shop.sold", dict), to=sink)
    sold, sent = new.event("shop.sold", dict), new.event("shop.sent", dict)
    new.relay("out", sold, sent, to=sink)
    async with old.worker(id="old", **FAST):
        await subscribed(conn, 1)
        async with new.worker(id="new", **FAST):
            await until(lambda: _topics(conn, 2))
            await new.publish_many(conn, [sent.new({"n": 1}, key="a"), sold.new({"n": 2}, key="b")])
            await until(lambda: {*sink.taken} == {1, 2})


async def _topics(conn: psycopg.AsyncConnection[Any], count: int) -> bool:
    found = await conn.execute("SELECT cardinality(topics) FROM holdfast.subscription")
    return await found.fetchone() == (count,)


async def test_one_that_makes_jobs_is_never_cut(database: str, conn: psycopg.AsyncConnection[Any]) -> None:
    app = Holdfast(database)

    @app.on(app.event("shop.sold", dict), name="ledger")
    async def book(job: Job[None], event: Event[dict[str, int]]) -> None: ...

    async with app.worker(**FAST):
        await subscribed(conn, 1)
        subscription = await run(conn, find_subscription("ledger"))
        assert subscription is not None
        assert not await run(conn, repartition_subscription(subscription, partitions=4))
        await until(lambda: _held(conn, 1))
