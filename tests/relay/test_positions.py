"""Positions in the log: who holds them, what moves them, and the traps of reading by snapshots."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run, run_sync
from holdfast._store.event import Cut, read_events
from holdfast._store.maintenance import expired_partitions
from holdfast._store.subscription import (
    feed_jobs,
    find_subscription,
    list_subscriptions,
    pause_subscription,
    repartition_subscription,
    replay_subscription,
    skip_subscription,
)
from labs.bench.explain import explained
from tests.kit.mutation import open_trap
from tests.kit.waiting import until
from tests.relay.reading import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    Connect = Callable[..., psycopg.Connection[Any]]

HOLD = """
    CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$;
    CREATE TRIGGER hold AFTER INSERT ON holdfast.subscription FOR EACH ROW EXECUTE FUNCTION hold()
"""
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"
PUBLISH = "SELECT holdfast.publish('t', '{}', key => %s)"


@pytest.fixture
async def reader(conn: psycopg.AsyncConnection[Any]) -> Reader:
    reader = Reader(conn, "all")
    await reader.join()
    return reader


def publish(conn: psycopg.Connection[Any], count: int = 1, key: str | None = None) -> list[int]:
    return [conn.execute(PUBLISH, [key]).fetchone()[0] for _ in range(count)]  # type: ignore[index]


def ids(events: Any) -> list[int]:
    return [event.id for event in events]


async def test_a_subscription_begins_now(database: str, conn: psycopg.AsyncConnection[Any], connect: Connect) -> None:
    writer = connect()
    publish(writer, 3)
    reader = Reader(conn, "late")
    await reader.join()
    after = publish(writer, 2)
    assert ids(await reader.read()) == after


async def test_a_subscription_begins_at_the_beginning(conn: psycopg.AsyncConnection[Any], connect: Connect) -> None:
    writer, late = connect(), connect(autocommit=False)
    under_way = publish(late)
    before = publish(writer, 5)
    reader = Reader(conn, "early")
    await reader.join(beginning=True)
    assert ids(await reader.read(limit=2)) == before
    late.commit()
    assert ids(await reader.read()) == under_way


@pytest.mark.parametrize("beginning", [True, False])
async def test_what_is_published_while_a_subscription_is_created_is_not_lost(
    conn: psycopg.AsyncConnection[Any], connect: Connect, beginning: bool
) -> None:
    """Between the id of the transaction that creates it and its snapshot, another one publishes."""
    reader, other, late = Reader(conn, "new"), connect(autocommit=False), connect(autocommit=False)
    await conn.execute(HOLD)
    other.execute("SELECT pg_advisory_xact_lock(1)")
    creating = asyncio.create_task(reader.join(beginning=beginning))
    await until(lambda: other.execute(WAITING).fetchone() == (1,))
    under_way = publish(late)
    other.rollback()
    await creating
    late.commit()
    assert ids(await reader.read()) == under_way


async def test_nor_is_it_if_the_creating_transaction_has_written_before(
    conn: psycopg.AsyncConnection[Any], connect: Connect
) -> None:
    reader, late = Reader(conn, "new"), connect(autocommit=False)
    async with conn.transaction():
        await conn.execute("SELECT pg_current_xact_id()")
        under_way = publish(late)
        await reader.join()
    late.commit()
    assert ids(await reader.read()) == under_way


async def test_a_late_commit_is_delivered_once(reader: Reader, connect: Connect) -> None:
    writer, late = connect(), connect(autocommit=False)
    [held_back] = publish(late)
    first = publish(writer, 3)
    assert ids(await reader.read()) == first
    assert ids(await reader.read()) == []
    late.commit()
    second = publish(writer, 2)
    assert ids(await reader.read()) == [held_back, *second]
    assert ids(await reader.read()) == []


async def test_one_that_runs_past_the_end_of_the_snapshot_is_late_too(reader: Reader, connect: Connect) -> None:
    late = connect(autocommit=False)
    # Nobody with a later number has ended: the snapshot's xmax is this one's own, and its list does not name it.
    [held_back] = publish(late)
    assert ids(await reader.read()) == []
    late.commit()
    assert ids(await reader.read()) == [held_back]


async def test_the_list_of_a_snapshot_alone_would_lose_events(
    reader: Reader, connect: Connect, conn: psycopg.AsyncConnection[Any]
) -> None:
    open_trap(connect(), "read_events", ("e.xid >= pg_snapshot_xmax(seen) AND e.xid < seen_xid", "false"))
    late = connect(autocommit=False)
    publish(late)
    assert ids(await reader.read()) == []
    late.commit()
    assert ids(await reader.read()) == []


async def test_reading_past_the_last_id_would_lose_events(reader: Reader, connect: Connect) -> None:
    open_trap(
        connect(),
        "read_events",
        ("e.xid >= pg_snapshot_xmax(seen) AND e.xid < seen_xid", "false"),
        ("e.xid = ANY (late)", "false"),
    )
    writer, late = connect(), connect(autocommit=False)
    publish(late)
    publish(writer)
    await reader.read()
    late.commit()
    assert ids(await reader.read()) == []


async def test_a_page_is_resumed_where_it_ended_by_another(
    reader: Reader, conn: psycopg.AsyncConnection[Any], connect: Connect
) -> None:
    writer = connect()
    published = publish(writer, 10)
    page = await reader.page(limit=4)
    assert await reader.advance(page)
    more = publish(writer, 2)
    other = Reader(conn, "all", worker=2)
    await conn.execute("UPDATE holdfast.member SET until = now() - interval '1 second'")
    await other.join()
    assert ids(reader.events) == published[:4]
    # The rest of the difference that was begun, and then the next one.
    assert ids(await other.read(limit=3)) == published[4:]
    assert ids(await other.read(limit=3)) == more


async def test_a_stale_holder_moves_nothing(
    reader: Reader, conn: psycopg.AsyncConnection[Any], connect: Connect
) -> None:
    publish(connect(), 3)
    page = await reader.page()
    other = Reader(conn, "all", worker=2)
    assert (await other.join()).held == []
    await conn.execute("UPDATE holdfast.member SET until = now() - interval '1 second'")
    assert [held.partition for held in (await other.join()).held] == [0]
    assert not await reader.advance(page)
    assert len(await other.read()) == 3


async def test_members_share_partitions_fairly(conn: psycopg.AsyncConnection[Any]) -> None:
    one = Reader(conn, "cut", worker=1, partitions=4)
    two = Reader(conn, "cut", worker=2, partitions=4)
    assert [held.partition for held in (await one.join()).held] == [0, 1, 2, 3]
    found = await two.join()
    assert (found.held, found.share) == ([], 2)
    assert (await one.join()).share == 2


async def test_partitions_divide_events_by_key(conn: psycopg.AsyncConnection[Any], connect: Connect) -> None:
    reader = Reader(conn, "cut", partitions=3)
    await reader.join()
    published = [publish(connect(), key=f"k{n % 9}")[0] for n in range(90)]
    parts = [await reader.read(part, limit=7) for part in range(3)]
    assert sorted(id_ for part in parts for id_ in ids(part)) == published
    keys = [{event.key for event in part} for part in parts]
    assert not keys[0] & keys[1] | keys[1] & keys[2] | keys[0] & keys[2]
    assert all(ids(part) == sorted(ids(part)) for part in parts)


async def test_only_its_topics_are_read(conn: psycopg.AsyncConnection[Any], connect: Connect) -> None:
    reader = Reader(conn, "some")
    reader.topics = ("wanted",)
    await reader.join()
    writer = connect()
    writer.execute(
        "SELECT holdfast.publish(CASE WHEN n % 10 = 0 THEN 'wanted' ELSE 't' END, '{}') FROM generate_series(1, 100) n"
    )
    found = await reader.read(limit=7)
    assert ids(found) == list(range(10, 101, 10))


async def test_replay_hands_over_again_and_goes_on(reader: Reader, connect: Connect) -> None:
    writer, late = connect(), connect(autocommit=False)
    [held_back] = publish(late)
    published = publish(writer, 6)
    assert ids(await reader.read()) == published
    assert run_sync(writer, replay_subscription(reader.subscription, after=published[2])) == published[2]
    assert not await reader.advance(await reader.page())
    await reader.join()
    more = publish(writer, 1)
    late.commit()
    assert ids(await reader.read(limit=2)) == [*published[3:], held_back, *more]


async def test_replay_since_a_time(reader: Reader, connect: Connect) -> None:
    writer = connect()
    publish(writer, 2)
    row = writer.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    second = publish(writer, 2)
    await reader.read()
    assert run_sync(writer, replay_subscription(reader.subscription, since=row[0])) == second[0] - 1
    await reader.join()
    assert ids(await reader.read()) == second


async def test_skipping_passes_what_there_is(reader: Reader, connect: Connect) -> None:
    writer = connect()
    publish(writer, 5)
    run_sync(writer, skip_subscription(reader.subscription))
    after = publish(writer, 1)
    await reader.join()
    assert ids(await reader.read()) == after


async def test_a_paused_subscription_gets_no_new_holder(conn: psycopg.AsyncConnection[Any], reader: Reader) -> None:
    assert await run(conn, pause_subscription(reader.subscription, paused=True))
    assert (await reader.join()).paused
    other = Reader(conn, "all", worker=9)
    await conn.execute("UPDATE holdfast.member SET until = now() - interval '1 second'")
    assert (await other.join()).held == []
    await run(conn, pause_subscription(reader.subscription, paused=False))
    assert len((await other.join()).held) == 1


@pytest.mark.parametrize("parts", [1, 5])
async def test_cutting_anew_loses_nothing(conn: psycopg.AsyncConnection[Any], connect: Connect, parts: int) -> None:
    reader = Reader(conn, "cut", partitions=3)
    await reader.join()
    published = [publish(connect(), key=f"k{n % 9}")[0] for n in range(30)]
    await reader.read(1)
    await run(conn, repartition_subscription(reader.subscription, partitions=parts))
    assert not await reader.advance(await reader.page(2), 2)
    await conn.execute("UPDATE holdfast.member SET until = now() - interval '1 second'")
    assert len((await reader.join()).held) == parts
    reader.events = []
    for part in range(parts):
        await reader.read(part)
    assert set(published) <= set(ids(reader.events))


async def test_feeding_makes_a_job_per_event_with_the_position(
    conn: psycopg.AsyncConnection[Any], reader: Reader, connect: Connect
) -> None:
    published = publish(connect(), 5, key="k")
    feed = feed_jobs(
        reader.subscription, 1, kind="book", queue="default", priority=5, max_attempts=3, ordered=True, limit=3
    )
    async with conn.transaction(force_rollback=True):
        await run(conn, feed)
    made = [await run(conn, feed), await run(conn, feed), await run(conn, feed)]
    assert [fed and (fed.events, fed.more, len(fed.made)) for fed in made] == [
        (3, True, 3),
        (2, False, 2),
        (0, False, 0),
    ]
    rows = await (await conn.execute("SELECT unique_key, order_key FROM holdfast.job ORDER BY id")).fetchall()
    assert rows == [(f"all:{id_}", "all:k") for id_ in published]


async def test_a_replay_makes_no_second_job_while_the_first_is_alive(
    conn: psycopg.AsyncConnection[Any], reader: Reader, connect: Connect
) -> None:
    owner = connect()
    ended, alive = publish(owner, 2)
    feed = feed_jobs(
        reader.subscription, 1, kind="book", queue="default", priority=5, max_attempts=3, ordered=False, limit=9
    )
    await run(conn, feed)
    owner.execute("DELETE FROM holdfast.job WHERE unique_key = %s", [f"all:{ended}"])
    first = owner.execute("SELECT id FROM holdfast.job").fetchall()
    run_sync(owner, replay_subscription(reader.subscription, after=0))
    await reader.join()
    fed = await run(conn, feed)
    assert fed is not None
    assert (fed.events, len(fed.made)) == (2, 1)
    assert owner.execute("SELECT id FROM holdfast.job WHERE unique_key = %s", [f"all:{alive}"]).fetchall() == first


async def test_only_one_worker_feeds(conn: psycopg.AsyncConnection[Any], reader: Reader, connect: Connect) -> None:
    publish(connect())
    feed = feed_jobs(
        reader.subscription, 2, kind="book", queue="default", priority=5, max_attempts=3, ordered=False, limit=3
    )
    assert await run(conn, feed) is None


async def test_a_day_that_is_not_read_is_never_dropped(reader: Reader, connect: Connect) -> None:
    owner = connect()
    owner.execute("SELECT holdfast.ensure_partitions()")
    owner.execute("CREATE TABLE holdfast.event_20200101 (LIKE holdfast.event INCLUDING ALL)")
    owner.execute("ALTER TABLE holdfast.event_days ATTACH PARTITION holdfast.event_20200101 "
                  "FOR VALUES FROM ('2020-01-01') TO ('2020-01-02')")  # fmt: skip
    insert = (
        "INSERT INTO holdfast.event (id, published_at, xid, shard, topic, payload) "
        "VALUES (nextval('holdfast.event_id_seq'), '2020-01-01 12:00', pg_current_xact_id(), 0, 't', '{}')"
    )
    owner.execute(insert.encode())
    assert run_sync(owner, expired_partitions(limit=10)) == []
    late = connect(autocommit=False)
    late.execute(insert.encode())
    publish(owner)
    assert len(await reader.read()) == 2
    # Who has written into it and not ended yet could still commit.
    assert run_sync(owner, expired_partitions(limit=10)) == []
    late.commit()
    assert run_sync(owner, expired_partitions(limit=10)) == []
    assert len(await reader.read()) == 1
    publish(owner)
    await reader.read()
    assert [found.name for found in run_sync(owner, expired_partitions(limit=10))] == ["event_20200101"]
    run_sync(owner, replay_subscription(reader.subscription, after=0))
    assert run_sync(owner, expired_partitions(limit=10)) == []


async def test_lag_is_reported(reader: Reader, connect: Connect) -> None:
    writer = connect()
    publish(writer, 4)
    [line] = run_sync(writer, list_subscriptions())
    assert (line.name, line.partition, line.events, line.worker) == ("all", 0, 4, 1)
    assert line.seconds > 0
    await reader.read()
    [line] = run_sync(writer, list_subscriptions())
    assert (line.events, line.seconds) == (0, 0)
    assert run_sync(writer, find_subscription("all")) == reader.subscription
    assert run_sync(writer, find_subscription("none")) is None


@pytest.mark.nightly
async def test_a_look_costs_the_same_with_a_long_log_behind_it(
    reader: Reader, conn: psycopg.AsyncConnection[Any], connect: Connect
) -> None:
    async def buffers() -> int:
        cut = Cut((), 1, 0)
        statement = explained(read_events(cut, reader.held[0].position, limit=100))
        return (await run(conn, statement)).buffers

    writer = connect()
    fill = "SELECT count(holdfast.publish('t', '{}', key => n::text)) FROM generate_series(1, %s) n"
    writer.execute(fill, [100])
    await reader.read(limit=5_000)
    writer.execute(fill, [10])
    before = await buffers()
    await reader.read()
    writer.execute(fill, [30_000])
    writer.execute("ANALYZE holdfast.event")
    await reader.read(limit=5_000)
    writer.execute(fill, [10])
    assert await buffers() <= 2 * before


async def test_the_producer_can_publish_and_nothing_else(connect: Connect) -> None:
    conn = connect()
    conn.execute("SET ROLE holdfast_producer")
    publish(conn, 1)
    conn.execute('SELECT holdfast.publish_events(\'[{"topic": "t", "payload": {}}]\')')
    for forbidden in (
        "SELECT * FROM holdfast.event",
        "DELETE FROM holdfast.event",
        "SELECT nextval('holdfast.event_id_seq')",
        "SELECT holdfast.last_event_id()",
        "SELECT holdfast.subscribe('x', 'y', '{}', 1, false)",
        "SELECT holdfast.replay_subscription(1, NULL, 0)",
        "SELECT holdfast.receive('a', 'b')",
        "SELECT holdfast.wake_readers('{t}')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(forbidden.encode())


async def test_a_worker_can_read_the_log_and_not_change_it(conn: psycopg.AsyncConnection[Any]) -> None:
    await conn.execute("SET ROLE holdfast_worker")
    reader = Reader(conn, "worker's")
    await reader.join()
    await conn.execute(PUBLISH, ["k"])
    assert len(await reader.read()) == 1
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        await conn.execute("DELETE FROM holdfast.event")
