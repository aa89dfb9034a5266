"""A job on a connection in autocommit mode does not commit with the caller's data: a warning, once for each line."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest
from django.db import connection, transaction
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import AutocommitWarning, Holdfast, Job
from tests.kit.django_config import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

app = Holdfast()


@app.job("autocommit.act")
async def act(job: Job[Any]) -> None: ...


@pytest.fixture(autouse=True)
def shown() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


async def test_psycopg(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        with pytest.warns(AutocommitWarning, match=r"write `async with conn\.transaction\(\):`"):
            await app.enqueue(conn, act.new())
        async with conn.transaction():
            await app.enqueue(conn, act.new())
    async with await psycopg.AsyncConnection.connect(database) as conn:
        await app.enqueue(conn, act.new())


def test_psycopg_without_an_event_loop(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        with pytest.warns(AutocommitWarning, match=r"write `with conn\.transaction\(\):`"):
            app.sync.enqueue_many(conn, [act.new()])
        with conn.transaction():
            app.sync.enqueue(conn, act.new())


async def test_asyncpg(database: str) -> None:
    conn = await asyncpg.connect(database)
    try:
        with pytest.warns(AutocommitWarning, match=r"write `async with conn\.transaction\(\):`"):
            await app.enqueue(conn, act.new())
        async with conn.transaction():
            await app.enqueue(conn, act.new())
    finally:
        await conn.close()


@pytest.mark.parametrize("how", ["engine", "options"])
async def test_sqlalchemy(database: str, how: str) -> None:
    url = database.replace("postgresql://", "postgresql+psycopg://")
    autocommit = {"isolation_level": "AUTOCOMMIT"}
    plain = create_async_engine(url)
    engine = create_async_engine(url, **autocommit) if how == "engine" else plain.execution_options(**autocommit)
    async with AsyncSession(engine) as session, engine.connect() as conn:
        for each in (session, conn):
            with pytest.warns(AutocommitWarning, match="isolation_level"):
                await app.enqueue(each, act.new())
    async with AsyncSession(plain) as session:
        await app.enqueue(session, act.new())
    await engine.dispose()
    await plain.dispose()


def test_sqlalchemy_without_an_event_loop(database: str) -> None:
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        app.sync.enqueue(session, act.new())
    warned = pytest.warns(AutocommitWarning, match="isolation_level")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn, warned:
        app.sync.enqueue(conn, act.new())
    engine.dispose()


def test_django(database: str) -> None:
    with connected(default=database):
        for _ in range(2):  # before the connection is open, and after
            with pytest.warns(AutocommitWarning, match=r"write `with transaction\.atomic\(\):`"):
                app.sync.enqueue(connection, act.new())
        with transaction.atomic():
            app.sync.enqueue(connection, act.new())


def test_once_for_each_line(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            app.sync.enqueue(conn, act.new())
        app.sync.enqueue(conn, act.new())
    assert len(seen) == 2
    assert {warning.filename for warning in seen} == {__file__}


def test_it_can_be_silenced(database: str) -> None:
    warnings.filterwarnings("ignore", category=AutocommitWarning)
    with psycopg.connect(database, autocommit=True) as conn:
        app.sync.enqueue(conn, act.new())
