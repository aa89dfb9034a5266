"""The verbs on chains, on every kind of connection a caller may bring."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy as sa
from django.conf import settings
from django.db import connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import ChainAwaited, Continue, Holdfast, Job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from holdfast import Kind


@asynccontextmanager
async def psycopg_async(database: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(database, row_factory=dict_row) as conn:
        yield conn


@asynccontextmanager
async def asyncpg_connection(database: str) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(database)
    try:
        yield conn
    finally:
        await conn.close()


@asynccontextmanager
async def sqlalchemy_async(database: str) -> AsyncIterator[Any]:
    engine = create_async_engine(database.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with AsyncSession(engine) as session:
            yield session
    finally:
        await engine.dispose()


@contextmanager
def sqlalchemy_sync(database: str) -> Iterator[Any]:
    engine = sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with Session(engine) as session:
            yield session
    finally:
        engine.dispose()


@contextmanager
def django_connection(database: str) -> Iterator[Any]:
    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}}, USE_TZ=True)
        django.setup()
    address = conninfo_to_dict(database)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    connection.settings_dict.update({name: str(address.get(key) or "") for name, key in names.items()})
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture
def act(app: Holdfast) -> Kind[..., str]:
    @app.job("act")
    def act(job: Job[None]) -> str:
        return "acted"

    return act


@pytest.mark.parametrize("connected", [psycopg_async, asyncpg_connection, sqlalchemy_async])
async def test_async(
    app: Holdfast,
    database: str,
    act: Kind[..., str],
    connected: Callable[[str], AbstractAsyncContextManager[Any]],
) -> None:
    async with connected(database) as conn:
        handle = await app.enqueue(conn, act.new())
        last = await app.enqueue_group(conn, [act.new()], then=act.new().options(after=[handle]))
        assert await app.complete_chain(conn, handle, Continue(act.new())) == "completed"
        assert await app.complete_chain(conn, handle, "done") == "completed"
        assert await app.complete_chain(conn, handle, "again") == "already_ended"
        chain = await app.get_chain(conn, handle)
        assert chain is not None
        assert (len(chain.jobs), chain.result) == (2, "done")
        lines = await app.list_chains(conn, kind="act", status="blocked", before=last.id + 1, limit=5)
        assert [(line.id, line.last_id) for line in lines] == [(last.id, last.id)]
        assert await app.delete_chains(conn, [last, handle], cascade=True) == [handle.id, last.id]


@pytest.mark.parametrize("connected", [psycopg.connect, sqlalchemy_sync, django_connection])
def test_sync(
    app: Holdfast, database: str, act: Kind[..., str], connected: Callable[[str], AbstractContextManager[Any]]
) -> None:
    with connected(database) as conn:
        handle = app.sync.enqueue(conn, act.new())
        last = app.sync.enqueue_group(conn, [act.new()], then=act.new().options(after=[handle]))
        assert app.sync.complete_chain(conn, handle, Continue(act.new())) == "completed"
        assert app.sync.complete_chain(conn, handle, "done") == "completed"
        assert app.sync.complete_chain(conn, handle, "again") == "already_ended"
        chain = app.sync.get_chain(conn, handle)
        assert chain is not None
        assert (len(chain.jobs), chain.result) == (2, "done")
        lines = app.sync.list_chains(conn, kind="act", status="blocked", before=last.id + 1, limit=5)
        assert [(line.id, line.last_id) for line in lines] == [(last.id, last.id)]
        assert app.sync.delete_chains(conn, [last, handle], cascade=True) == [handle.id, last.id]
        blocker = app.sync.enqueue(conn, act.new())
        waiter = app.sync.enqueue(conn, act.new().options(after=[blocker]))
        with pytest.raises(ChainAwaited) as caught:
            app.sync.delete_chains(conn, [blocker])
        assert caught.value.waiters == (waiter.id,)
        if hasattr(conn, "rollback"):
            conn.rollback()
