"""A database that moves to a server with another identifier: by pg_upgrade, or as a dump that is restored there."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast._drivers import run
from holdfast._store.schema import migrate
from holdfast._store.subscription import feed_jobs, list_subscriptions, rebase_subscription, subscribe
from tests.kit.waiting import until
from tests.relay.ledger import Ledger
from tests.relay.reading import Reader
from tests.relay.test_relays import FAST, SOON, subscribed
from tools.postgres import Server
from tools.upgrade import provide_upgrade, upgraded

if TYPE_CHECKING:
    from collections.abc import Callable

    Connection = psycopg.AsyncConnection[Any]
    Connect = Callable[..., psycopg.Connection[Any]]

ANOTHER = "UPDATE holdfast.subscription SET cluster = 1"
# A restored row is written by another transaction than the one it names.
RESTORED = "UPDATE holdfast.position SET seq = seq"
APPENDED = """
    INSERT INTO holdfast.position (subscription_id, partition, seq, seen, seen_id, seen_top, seen_xid)
    SELECT p.subscription_id, p.partition, p.seq + 1, {seen}, p.seen_id, p.seen_top, p.seen_xid
    FROM holdfast.position_of(1, 0) AS p
"""
EVENT = """
    INSERT INTO holdfast.event (id, published_at, xid, shard, topic, payload)
    VALUES (nextval('holdfast.event_id_seq'), now(), {xid}, 0, 't', '{{}}')
"""
JOBS: dict[str, Any] = {"kind": "k", "queue": "q", "priority": 5, "max_attempts": 3, "ordered": False, "limit": 100}
SPENT = "DO $$ BEGIN FOR n IN 1..3000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"


@pytest.fixture
async def reader(conn: Connection) -> Reader:
    """It has read three events, and two are unread."""
    reader = Reader(conn, "all")
    await reader.join()
    await publish(conn, 3)
    await reader.read()
    await publish(conn, 2)
    return reader


async def publish(conn: Connection, count: int = 1) -> list[int]:
    found = [await conn.execute("SELECT holdfast.publish('t', '{}')") for _ in range(count)]
    return [row[0] for cursor in found for row in await cursor.fetchall()]


async def read(reader: Reader) -> list[int]:
    return [event.id for event in await reader.read(limit=2)]


@pytest.mark.nightly
@pytest.mark.parametrize(("before", "after"), [(15, 15), (16, 18)])
async def test_after_pg_upgrade_reading_goes_on_where_it_was(before: int, after: int) -> None:
    """With frozen rows, a difference that is half read, and a subscription that was never read."""
    with Server(before, provide_upgrade(before)) as old:
        async with await psycopg.AsyncConnection.connect(old.url(), autocommit=True) as conn:
            with psycopg.connect(old.url(), autocommit=True) as owner:
                migrate(owner)
            reader, half = Reader(conn, "all"), Reader(conn, "half", worker=2)
            await reader.join()
            await half.join()
            await publish(conn, 3)
            await reader.read()
            unread = await publish(conn, 3)
            page = await half.page(limit=4)
            assert not page.last
            assert await half.advance(page)
            await run(conn, subscribe("new", target="job", topics=[], partitions=1, beginning=True, makes_jobs=True))
            await conn.execute("VACUUM (FREEZE) holdfast.position")
            identifier = await _identifier(conn)
        with upgraded(old, after) as new:
            async with await psycopg.AsyncConnection.connect(new.url(), autocommit=True) as conn:
                assert await _identifier(conn) != identifier
                reader.conn = half.conn = conn
                early = await publish(conn)
                assert not any(line.elsewhere for line in await run(conn, list_subscriptions()))
                found = await reader.join()
                assert (found.moved, found.elsewhere) == (True, False)
                assert not (await reader.join()).moved
                assert (await half.join()).moved
                assert await read(reader) == unread + early
                assert await read(half) == unread[1:]
                later = await publish(conn)
                assert await read(reader) == later
                assert await read(half) == early + later
                made = Reader(conn, "new", worker=3)
                assert (await made.join(beginning=True)).moved
                fed = await run(conn, feed_jobs(made.subscription, 3, **JOBS))
                assert fed is not None
                assert fed.events == 8


async def _identifier(conn: Connection) -> int:
    row = await (await conn.execute("SELECT holdfast.cluster()")).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.nightly(daily=["fresh server"])
@pytest.mark.parametrize("spent", [False, True], ids=["fresh server", "server with higher transaction ids"])
async def test_after_a_restore_into_another_server_nothing_is_read_until_rebased(spent: bool) -> None:
    with Server(15) as here, Server(15) as there:  # whose pg_dump is at hand everywhere
        with psycopg.connect(here.url(), autocommit=True) as owner:
            migrate(owner)
        async with (
            await psycopg.AsyncConnection.connect(here.url(), autocommit=True) as conn,
            await psycopg.AsyncConnection.connect(here.url()) as late,
        ):
            reader = Reader(conn, "all")
            await reader.join()
            await publish(conn, 3)
            held_back = await publish(late)
            await reader.read()
            await late.commit()
            unread = await publish(conn, 2)
        async with await psycopg.AsyncConnection.connect(there.url(), autocommit=True) as conn:
            if spent:
                await conn.execute(SPENT)
            _copy(here, there)
            restored = Reader(conn, "all", worker=7)
            found = await restored.join()
            assert (found.moved, found.elsewhere, found.held) == (False, True, [])
            published = await publish(conn)
            assert await run(conn, rebase_subscription(restored.subscription)) is not None
            assert not (await restored.join()).elsewhere
            handed = await read(restored)
            assert set(handed) >= {*held_back, *unread, *published}
            assert handed == sorted(handed)
            more = await publish(conn)
            assert await read(restored) == more
            # What was restored does not keep a later pg_upgrade from being one.
            await conn.execute(ANOTHER)
            assert (await restored.join()).moved
            assert await read(restored) == []


def _copy(source: Server, target: Server) -> None:
    """Dump a database and restore it, as an operator does."""
    options: dict[str, Any] = {"capture_output": True, "text": True}
    command = [_program("pg_dump"), "--no-owner", "--no-privileges", source.url()]
    dump = subprocess.run(command, check=True, **options).stdout  # noqa: S603 - a program of PostgreSQL's
    command = [_program("psql"), "-q", "-v", "ON_ERROR_STOP=1", target.url()]
    subprocess.run(command, input=dump, check=True, **options)  # noqa: S603 - a program of PostgreSQL's


def _program(name: str) -> str:
    return f"/usr/lib/postgresql/15/bin/{name}"


async def test_rows_of_their_own_transactions_have_moved_with_the_server(conn: Connection, reader: Reader) -> None:
    await conn.execute(ANOTHER)
    found = await reader.join()
    assert (found.moved, found.elsewhere) == (True, False)
    assert len(await read(reader)) == 2


@pytest.mark.parametrize(
    "statements",
    [
        [RESTORED],
        [RESTORED, APPENDED.format(seen="p.seen")],
        [APPENDED.format(seen="'9000000:9000000:'")],
        [EVENT.format(xid="'3'")],
        [EVENT.format(xid="'9000000'")],
    ],
    ids=[
        "rows written by other transactions",
        "the newest row written here, and the one before it elsewhere",
        "a snapshot ahead of this server's transactions",
        "an event that would be taken for one that was seen",
        "an event of a transaction yet to come",
    ],
)
async def test_what_shows_that_positions_are_of_another_server(
    conn: Connection, reader: Reader, statements: list[str]
) -> None:
    for statement in statements:
        await conn.execute(statement.encode())
    await conn.execute(ANOTHER)
    found = await reader.join()
    assert (found.moved, found.elsewhere) == (False, True)
    assert [line.elsewhere for line in await run(conn, list_subscriptions())] == [True]


async def test_a_transaction_under_way_that_a_position_may_have_passed_must_end(
    conn: Connection, reader: Reader, connect: Connect
) -> None:
    with (open_one := connect()).transaction():
        open_one.execute("SELECT pg_current_xact_id()")
        await read(reader)
        await conn.execute(ANOTHER)
        assert (await reader.join()).elsewhere
    assert (await reader.join()).moved


async def test_the_log_says_it_once(database: str, conn: Connection, caplog: pytest.LogCaptureFixture) -> None:
    app = Holdfast(database)
    sold = app.event("shop.sold", dict)
    ledger = Ledger()
    app.relay("out", sold, to=ledger)
    async with asyncio.timeout(SOON):
        async with app.worker(**FAST):
            await subscribed(conn, 1)
        await conn.execute(ANOTHER)
        await app.publish(conn, sold.new({"n": 1}))
        with caplog.at_level(logging.WARNING, "holdfast"):
            async with app.worker(id="one", **FAST), app.worker(id="two", **FAST):
                await until(lambda: ledger.taken == [1])
    assert [record.getMessage() for record in caplog.records if "identifier" in record.getMessage()] == [
        "the server's identifier changed and its transactions did not: taken for a pg_upgrade: subscription=out"
    ]
