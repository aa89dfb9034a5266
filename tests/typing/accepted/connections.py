"""Every connection that a verb takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, assert_type

from django.db import connection, connections

from holdfast import Handle, Holdfast, Job

if TYPE_CHECKING:
    import asyncpg
    import psycopg
    from asyncpg.pool import PoolConnectionProxy
    from psycopg.rows import DictRow, TupleRow
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

app = Holdfast()


@app.job("receipt.send")
async def send_receipt(job: Job[None], invoice_id: int) -> str:
    return str(invoice_id)


@app.job("thumbnail")
def make_thumbnail(job: Job[None]) -> int:
    return job.id


async def with_psycopg(conn: psycopg.AsyncConnection[TupleRow], dicts: psycopg.AsyncConnection[DictRow]) -> None:
    handle = await app.enqueue(conn, send_receipt.new(1))
    assert_type(handle, Handle[str])
    assert_type((handle.id, handle.chain_id, handle.created), tuple[int, int, bool])
    assert_type(await app.enqueue_many(conn, [send_receipt.new(1), send_receipt.new(2)]), list[Handle[str]])
    mixed = await app.enqueue_many(dicts, [send_receipt.new(1), make_thumbnail.new()])
    first: Handle[Any] = mixed[0]
    assert_type(await app.cancel(conn, first.id), Literal["cancelled", "requested", "not_found"])


def with_psycopg_sync(conn: psycopg.Connection[TupleRow], dicts: psycopg.Connection[DictRow]) -> None:
    assert_type(app.sync.enqueue(conn, send_receipt.new(1)), Handle[str])
    assert_type(app.sync.enqueue_many(dicts, (make_thumbnail.new(),)), list[Handle[int]])
    assert_type(app.sync.cancel(conn, 1), Literal["cancelled", "requested", "not_found"])


async def with_asyncpg(
    conn: asyncpg.Connection[asyncpg.Record], pooled: PoolConnectionProxy[asyncpg.Record], pool: asyncpg.Pool[Any]
) -> None:
    assert_type(await app.enqueue(conn, send_receipt.new(1)), Handle[str])
    assert_type(await app.enqueue(pooled, send_receipt.new(1)), Handle[str])
    async with pool.acquire() as acquired:
        await app.enqueue(acquired, send_receipt.new(1))


async def with_sqlalchemy(
    session: AsyncSession, conn: AsyncConnection, scoped: async_scoped_session[AsyncSession]
) -> None:
    assert_type(await app.enqueue(session, send_receipt.new(1)), Handle[str])
    assert_type(await app.enqueue(conn, send_receipt.new(1)), Handle[str])
    assert_type(await app.enqueue(scoped, send_receipt.new(1)), Handle[str])


def with_sqlalchemy_sync(session: Session, conn: Connection, scoped: scoped_session[Session]) -> None:
    assert_type(app.sync.enqueue(session, send_receipt.new(1)), Handle[str])
    assert_type(app.sync.enqueue(conn, send_receipt.new(1)), Handle[str])
    assert_type(app.sync.enqueue(scoped, send_receipt.new(1)), Handle[str])


def with_django() -> None:
    assert_type(app.sync.enqueue(connection, send_receipt.new(1)), Handle[str])
    assert_type(app.sync.enqueue(connections["default"], send_receipt.new(1)), Handle[str])
