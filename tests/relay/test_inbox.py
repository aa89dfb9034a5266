"""A message takes effect once per consumer, on every kind of connection, also when it is received concurrently."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from django.db import connection, transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import InvalidEvent, NoTransaction, WrongIsolation, inbox
from holdfast._engine.runner import Budget, Tick
from holdfast._engine.runners.database import open_runner_database
from holdfast._engine.runners.maintenance import Maintenance
from tests.kit.django_config import connected

if TYPE_CHECKING:
    from collections.abc import Callable

    Connect = Callable[..., psycopg.Connection[Any]]

SOON = 20.0
BOOK = "INSERT INTO booking (message) VALUES ('m')"


class BrokenError(Exception):
    pass


@pytest.fixture
def database(database: str) -> str:
    with psycopg.connect(database) as conn:
        conn.execute("CREATE TABLE booking (message text)")
    return database


def booked(database: str) -> int:
    """Return how often the message took effect."""
    with psycopg.connect(database) as conn:
        row = conn.execute("SELECT count(*) FROM booking").fetchone()
    assert row is not None
    return int(row[0])


async def aconnect(database: str, **options: Any) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(database, **options)


async def test_once_for_each_consumer_and_message(database: str) -> None:
    async with await aconnect(database) as conn:
        seen = []
        for consumer, message in [("a", "1"), ("a", "1"), ("b", "1"), ("a", "2"), ("b", "1"), ("a", "1")]:
            async with conn.transaction(), inbox.once(conn, message, consumer) as fresh:
                seen.append(fresh)
        assert seen == [True, False, True, True, False, False]
        # Within one transaction too.
        async with conn.transaction():
            async with inbox.once(conn, "3", "a") as first:
                pass
            async with inbox.once(conn, "3", "a") as second:
                pass
        assert (first, second) == (True, False)


async def test_names_that_run_together_are_apart(database: str) -> None:
    async with (
        await aconnect(database) as conn,
        inbox.once(conn, "bc", "a") as first,
        inbox.once(conn, "c", "ab") as second,
    ):
        assert (first, second) == (True, True)


async def test_a_rollback_makes_it_new_again(database: str) -> None:
    async with await aconnect(database) as conn:
        with suppress(BrokenError):
            async with conn.transaction(), inbox.once(conn, "m", "a") as fresh:
                assert fresh
                await conn.execute(BOOK)
                raise BrokenError
        async with conn.transaction():
            async with conn.transaction(force_rollback=True), inbox.once(conn, "m", "a") as fresh:
                assert fresh
            async with inbox.once(conn, "m", "a") as fresh:
                assert fresh
                await conn.execute(BOOK)
    assert booked(database) == 1


async def test_an_error_that_is_caught_before_the_commit_counts_as_processed(database: str) -> None:
    async with await aconnect(database) as conn:
        async with conn.transaction():
            with suppress(BrokenError):
                async with inbox.once(conn, "m", "a"):
                    raise BrokenError
        async with conn.transaction(), inbox.once(conn, "m", "a") as fresh:
            assert not fresh


@pytest.mark.parametrize("commits", [True, False])
async def test_the_second_waits_for_the_first(database: str, commits: bool) -> None:
    async with await aconnect(database) as first, await aconnect(database) as second:
        async with inbox.once(first, "m", "a") as fresh:
            assert fresh
        receiving = asyncio.create_task(_book(second))
        await _blocked(database, second.info.backend_pid)
        assert not receiving.done()
        # Other messages and other consumers wait for nobody.
        async with await aconnect(database) as other:
            async with inbox.once(other, "m", "b") as fresh_to_b, inbox.once(other, "n", "a") as fresh_n:
                assert (fresh_to_b, fresh_n) == (True, True)
            await other.rollback()
        if commits:
            await first.execute(BOOK)
            await first.commit()
        else:
            await first.rollback()
        async with asyncio.timeout(SOON):
            assert await receiving is not commits
        await second.commit()
    assert booked(database) == 1


async def test_a_consumer_that_dies_in_between_has_received_nothing(database: str, connect: Connect) -> None:
    first = await aconnect(database)
    async with inbox.once(first, "m", "a") as fresh:
        assert fresh
        await first.execute(BOOK)
    async with await aconnect(database) as second:
        receiving = asyncio.create_task(_book(second))
        await _blocked(database, second.info.backend_pid)
        connect().execute("SELECT pg_terminate_backend(%s)", [first.info.backend_pid])
        async with asyncio.timeout(SOON):
            assert await receiving
        await second.commit()
    await first.close()
    assert booked(database) == 1


async def test_many_at_once_book_once(database: str) -> None:
    async def receive() -> bool:
        async with await aconnect(database) as conn:
            return await _book(conn)

    assert sum(await asyncio.gather(*(receive() for _ in range(20)))) == 1
    assert booked(database) == 1


async def test_outside_of_a_transaction_it_is_refused_and_nothing_is_received(database: str, connect: Connect) -> None:
    async with await aconnect(database, autocommit=True) as conn:
        with pytest.raises(NoTransaction, match="begin one"):
            async with inbox.once(conn, "m", "a"):
                pytest.fail("not to be reached")
        async with conn.transaction(), inbox.once(conn, "m", "a") as fresh:
            assert fresh
    plain: asyncpg.Connection[Any] = await asyncpg.connect(database)
    with pytest.raises(NoTransaction):
        async with inbox.once(plain, "m2", "a"):
            pass
    await plain.close()
    for driver in ("psycopg", "asyncpg"):
        engine = create_async_engine(
            database.replace("postgresql://", f"postgresql+{driver}://"), isolation_level="AUTOCOMMIT"
        )
        async with AsyncSession(engine) as session, session.begin():
            with pytest.raises(NoTransaction):
                async with inbox.once(session, "m3", "a"):
                    pass
        await engine.dispose()
    assert connect().execute("SELECT message_id FROM holdfast.inbox").fetchall() == [("m",)]


def test_outside_of_a_transaction_sync_connections_are_refused_too(database: str, connect: Connect) -> None:
    with pytest.raises(NoTransaction), inbox.sync.once(connect(), "m4", "a"):
        pass
    with connected(default=database), pytest.raises(NoTransaction), inbox.sync.once(connection, "m5", "a"):
        pass
    assert connect().execute("SELECT count(*) FROM holdfast.inbox").fetchone() == (0,)


async def test_only_read_committed(database: str) -> None:
    async with await aconnect(database) as conn:
        await conn.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        with pytest.raises(WrongIsolation, match="READ COMMITTED transaction, not in a REPEATABLE READ one"):
            async with inbox.once(conn, "m", "a"):
                pass


@pytest.mark.parametrize(("message", "consumer"), [("", "a"), ("m", ""), ("m" * 501, "a"), ("m", "a" * 201)])
async def test_what_is_no_id_is_refused(database: str, message: str, consumer: str) -> None:
    async with await aconnect(database) as conn:
        with pytest.raises(InvalidEvent, match=r"message_id|consumer"):
            async with inbox.once(conn, message, consumer):
                pass
        wrong: Any = 7
        with pytest.raises(InvalidEvent, match="message_id"):
            async with inbox.once(conn, wrong, "a"):
                pass


async def test_a_consumer_needs_one_function_and_no_table(database: str, connect: Connect) -> None:
    owner = connect()
    owner.execute("CREATE ROLE test_consumer LOGIN")
    try:
        owner.execute("GRANT USAGE ON SCHEMA holdfast TO test_consumer")
        owner.execute("GRANT EXECUTE ON FUNCTION holdfast.receive TO test_consumer")
        async with await aconnect(database, user="test_consumer") as conn:
            seen = []
            for _ in range(2):
                async with conn.transaction(), inbox.once(conn, "m", "a") as fresh:
                    seen.append(fresh)
    finally:
        owner.execute("DROP OWNED BY test_consumer")
        owner.execute("DROP ROLE test_consumer")
    assert seen == [True, False]


async def test_asyncpg(database: str) -> None:
    conn: asyncpg.Connection[Any] = await asyncpg.connect(database)
    for _ in range(2):
        async with conn.transaction(), inbox.once(conn, "m", "a") as fresh:
            if fresh:
                await conn.execute(BOOK)
    await conn.close()
    assert booked(database) == 1


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_sqlalchemy(database: str, driver: str) -> None:
    engine = create_async_engine(database.replace("postgresql://", f"postgresql+{driver}://"))
    for _ in range(2):
        async with AsyncSession(engine) as session, session.begin(), inbox.once(session, "m", "a") as fresh:
            if fresh:
                await session.execute(sa.text(BOOK))
    async with engine.begin() as conn, inbox.once(conn, "m", "a") as fresh:
        assert not fresh
    await engine.dispose()
    assert booked(database) == 1


def test_sync_connections(database: str) -> None:
    with psycopg.connect(database) as conn:
        for _ in range(2):
            with conn.transaction(), inbox.sync.once(conn, "m", "a") as fresh:
                if fresh:
                    conn.execute(BOOK)
    engine = sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session, session.begin(), inbox.sync.once(session, "m", "a") as fresh:
        assert not fresh
    with engine.begin() as begun, inbox.sync.once(begun, "n", "a") as fresh:
        assert fresh
    engine.dispose()
    with connected(default=database):
        for expected in (True, False):
            with transaction.atomic(), inbox.sync.once(connection, "d", "a") as fresh:
                assert fresh is expected
    assert booked(database) == 1


async def test_a_consumer_runs_once_for_each_message(database: str) -> None:
    @inbox.consumer("billing")
    async def book(conn: psycopg.AsyncConnection[Any], message_id: str, amount: int, *, currency: str) -> str:
        """Book it."""
        await conn.execute(BOOK)
        return f"{message_id}: {amount} {currency}"

    def id_of(message: dict[str, str]) -> str:
        return message["id"]

    @inbox.consumer("ledger", id_of=id_of)
    async def enter(conn: psycopg.AsyncConnection[Any], message: dict[str, str]) -> str:
        await conn.execute(BOOK)
        return message["text"]

    assert book.__doc__ == "Book it."
    async with await aconnect(database) as conn:
        answers = []
        for _ in range(2):
            async with conn.transaction():
                answers.append(await book(conn, "m", 5, currency="EUR"))
                answers.append(await enter(conn, {"id": "m", "text": "hello"}))
    assert answers == ["m: 5 EUR", "hello", None, None]
    assert booked(database) == 2


async def test_a_consumer_that_fails_receives_it_again(database: str) -> None:
    fails = True

    @inbox.consumer("billing")
    async def book(conn: psycopg.AsyncConnection[Any], message_id: str) -> bool:
        await conn.execute(BOOK)
        if fails:
            raise BrokenError
        return True

    async with await aconnect(database) as conn:
        with suppress(BrokenError):
            async with conn.transaction():
                await book(conn, "m")
        fails = False
        async with conn.transaction():
            assert await book(conn, "m")
    assert booked(database) == 1


def test_a_plain_consumer(database: str) -> None:
    @inbox.sync.consumer("billing")
    def book(conn: psycopg.Connection[Any], message_id: str) -> int:
        conn.execute(BOOK)
        return 7

    def id_of(message: tuple[int, str]) -> str:
        return str(message[0])

    @inbox.sync.consumer("ledger", id_of=id_of)
    def enter(conn: psycopg.Connection[Any], message: tuple[int, str]) -> str:
        return message[1]

    with psycopg.connect(database) as conn:
        assert [book(conn, "m"), book(conn, "m")] == [7, None]
        assert [enter(conn, (7, "hello")), enter(conn, (7, "again"))] == ["hello", None]
    assert booked(database) == 1


async def test_a_message_is_forgotten_when_it_was_kept_long_enough(database: str, connect: Connect) -> None:
    conn = connect()
    for days in (13, 15):
        conn.execute(
            "INSERT INTO holdfast.inbox (received_at, consumer, message_id) "
            "VALUES (now() - %s * interval '1 day', 'a', %s)",
            [days, f"of {days} days"],
        )
    async with await aconnect(database) as other, open_runner_database(database, name="test", seconds=SOON) as site:
        async with other.transaction(), inbox.once(other, "of 15 days", "a") as fresh:
            assert not fresh
        counts = await Maintenance(site).tick(Tick(name="maintenance", budget=Budget()))
        assert counts == {"messages_deleted": 1}
        async with (
            other.transaction(),
            inbox.once(other, "of 15 days", "a") as old,
            inbox.once(other, "of 13 days", "a") as new,
        ):
            assert (old, new) == (True, False)


async def _book(conn: psycopg.AsyncConnection[Any]) -> bool:
    async with inbox.once(conn, "m", "a") as fresh:
        if fresh:
            await conn.execute(BOOK)
    return fresh


async def _blocked(database: str, pid: int) -> None:
    """Wait until that backend waits for a lock."""
    async with await aconnect(database, autocommit=True) as conn, asyncio.timeout(SOON):
        while True:
            row = await (await conn.execute("SELECT pg_blocking_pids(%s)", [pid])).fetchone()
            if row is not None and row[0]:
                return
            await asyncio.sleep(0.01)
