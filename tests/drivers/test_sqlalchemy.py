from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast import DuplicateJob, InvalidJob, Unique, UnsupportedConnection
from holdfast._drivers import run, run_sync
from holdfast._store.statement import Statement
from tests.drivers.jobs import INSERT, app, seen, send_receipt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

RAISING = "DO $$ BEGIN RAISE EXCEPTION 'priority: no' USING ERRCODE = 'HF002'; END $$"
PLAIN = Statement(
    "SELECT %(b)s::text, %(big)s::bigint %% 4, '%%', ':x', %(b)s::text IS NULL", {"big": 2**40 + 3, "b": "x"}, list
)


@pytest.fixture(params=["psycopg", "asyncpg"])
async def engine(request: pytest.FixtureRequest, database: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(database.replace("postgresql://", f"postgresql+{request.param}://"))
    yield engine
    await engine.dispose()


@pytest.fixture
def sync_engine(database: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()


async def test_a_session_commits_jobs_with_its_own_writes(engine: AsyncEngine, database: str) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(sa.text(INSERT))
        handles = await app.enqueue_many(session, [send_receipt.new(1), send_receipt.new(2)])
        assert seen(database) == ([], 0)
    assert handles[0].id < handles[1].id
    assert seen(database) == ([1, 2], 1)


async def test_a_session_rolls_jobs_back(engine: AsyncEngine, database: str) -> None:
    async with AsyncSession(engine) as session:
        await session.execute(sa.text(INSERT))
        await app.enqueue(session, send_receipt.new(1))
        await session.rollback()
    assert seen(database) == ([], 0)


async def test_a_nested_transaction_takes_its_jobs_along(engine: AsyncEngine, database: str) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await app.enqueue(session, send_receipt.new(1))
        nested = await session.begin_nested()
        await app.enqueue(session, send_receipt.new(2))
        await nested.rollback()
    assert seen(database)[0] == [1]


class DeprecatesExecute(AsyncSession):
    """As SQLModel's session, which prefers a method of its own."""

    execute: Any = None


async def test_a_session_need_not_have_execute(engine: AsyncEngine, database: str) -> None:
    async with DeprecatesExecute(engine) as session, session.begin():
        await app.enqueue(session, send_receipt.new(1))
    assert seen(database)[0] == [1]


async def test_a_connection(engine: AsyncEngine, database: str) -> None:
    async with engine.connect() as conn:
        await conn.execute(sa.text(INSERT))
        await app.enqueue(conn, send_receipt.new(1))
        await conn.rollback()
        await app.enqueue(conn, send_receipt.new(2))
        await conn.commit()
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    async with autocommit.connect() as conn:
        await app.enqueue(conn, send_receipt.new(3))
        assert seen(database) == ([2, 3], 0)


async def test_a_scoped_session(engine: AsyncEngine, database: str) -> None:
    scoped: async_scoped_session[AsyncSession] = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
    await app.enqueue(scoped, send_receipt.new(1))
    await scoped.commit()
    await scoped.remove()
    assert seen(database)[0] == [1]


async def test_what_the_database_refuses(engine: AsyncEngine) -> None:
    async with engine.begin() as conn:
        first = await app.enqueue(conn, send_receipt.new(1).options(unique=Unique("k")))
        assert await run(conn, PLAIN) == [("x", 3, "%", ":x", False)]
    async with engine.connect() as conn:
        with pytest.raises(DuplicateJob) as caught:
            await app.enqueue(conn, send_receipt.new(2).options(unique=Unique("k", on_conflict="raise")))
    assert caught.value.existing_id == first.id
    async with AsyncSession(engine) as session:
        with pytest.raises(InvalidJob, match="priority: no"):
            await run(session, Statement(RAISING, {}, len))
        await session.rollback()
        with pytest.raises(sa.exc.DBAPIError):
            await run(session, Statement("SELECT 1 / %(n)s::int", {"n": 0}, len))


async def test_cancelling(engine: AsyncEngine) -> None:
    async with engine.begin() as conn:
        handle = await app.enqueue(conn, send_receipt.new(1))
        assert await app.cancel(conn, handle.id) == "cancelled"
        assert await app.cancel(conn, 2**40) == "not_found"


async def test_sync_objects_and_engines_are_refused(engine: AsyncEngine, sync_engine: sa.Engine) -> None:
    with Session(sync_engine) as session, sync_engine.connect() as conn:
        for wrong in (session, conn):
            given: Any = wrong
            with pytest.raises(UnsupportedConnection, match=r"use the same verb of \.sync"):
                await app.enqueue(given, send_receipt.new(1))
    for opener in (engine, sync_engine, async_sessionmaker(engine)):
        given = opener
        with pytest.raises(UnsupportedConnection, match="open one, and give that"):
            await app.enqueue(given, send_receipt.new(1))


def test_sync_session_connection_and_scoped_session(sync_engine: sa.Engine, database: str) -> None:
    with Session(sync_engine) as session:
        session.execute(sa.text(INSERT))
        app.sync.enqueue(session, send_receipt.new(1))
        session.rollback()
        assert seen(database) == ([], 0)
        session.execute(sa.text(INSERT))
        nested = session.begin_nested()
        app.sync.enqueue(session, send_receipt.new(2))
        nested.rollback()
        app.sync.enqueue(session, send_receipt.new(3))
        session.commit()
    with sync_engine.begin() as conn:
        app.sync.enqueue_many(conn, [send_receipt.new(4), send_receipt.new(5)])
        assert run_sync(conn, PLAIN) == [("x", 3, "%", ":x", False)]
    scoped = scoped_session(sessionmaker(sync_engine))
    app.sync.enqueue(scoped, send_receipt.new(6))
    scoped.commit()
    scoped.remove()
    assert seen(database) == ([3, 4, 5, 6], 1)


async def test_sync_code_inside_an_async_session(engine: AsyncEngine, database: str) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await session.run_sync(lambda inner: app.sync.enqueue(inner, send_receipt.new(1)))
    assert seen(database)[0] == [1]


def test_what_the_database_refuses_sync(sync_engine: sa.Engine) -> None:
    with sync_engine.begin() as conn:
        first = app.sync.enqueue(conn, send_receipt.new(1).options(unique=Unique("k")))
    with sync_engine.connect() as conn:
        with pytest.raises(DuplicateJob) as caught:
            app.sync.enqueue(conn, send_receipt.new(2).options(unique=Unique("k", on_conflict="raise")))
        conn.rollback()
        with pytest.raises(InvalidJob, match=r"^priority: no$"):
            run_sync(conn, Statement(RAISING, {}, len))
    assert caught.value.existing_id == first.id


async def test_async_objects_are_refused_by_sync_verbs(engine: AsyncEngine) -> None:
    async with AsyncSession(engine) as session, engine.connect() as conn:
        for wrong in (session, conn):
            given: Any = wrong
            with pytest.raises(UnsupportedConnection, match=r"without \.sync, and await it"):
                app.sync.enqueue(given, send_receipt.new(1))
