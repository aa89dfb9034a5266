"""Every marked line is an error to both checkers, and no other line is."""

from __future__ import annotations

from typing import Any

import asyncpg
import psycopg
from django.db import connection, connections
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast import Handle, Holdfast, Job

app = Holdfast()


@app.job("receipt.send")
async def send_receipt(job: Job[None], invoice_id: int) -> str:
    return str(invoice_id)


new = send_receipt.new(1)


async def sync_given_to_async(
    psycopg_sync: psycopg.Connection[Any], session: Session, conn: Connection, scoped: scoped_session[Session]
) -> None:
    await app.enqueue(psycopg_sync, new)  # rejected
    await app.enqueue_many(psycopg_sync, [new])  # rejected
    await app.cancel(psycopg_sync, 1)  # rejected
    await app.enqueue(session, new)  # rejected
    await app.enqueue(conn, new)  # rejected
    await app.enqueue(scoped, new)  # rejected
    await app.enqueue(connection, new)  # rejected
    await app.enqueue(connections["default"], new)  # rejected


def async_given_to_sync(
    psycopg_async: psycopg.AsyncConnection[Any],
    asyncpg_conn: asyncpg.Connection[Any],
    session: AsyncSession,
    conn: AsyncConnection,
    scoped: async_scoped_session[AsyncSession],
) -> None:
    app.sync.enqueue(psycopg_async, new)  # rejected
    app.sync.enqueue_many(psycopg_async, [new])  # rejected
    app.sync.cancel(psycopg_async, 1)  # rejected
    app.sync.enqueue(asyncpg_conn, new)  # rejected
    app.sync.enqueue(session, new)  # rejected
    app.sync.enqueue(conn, new)  # rejected
    app.sync.enqueue(scoped, new)  # rejected


async def no_connections(
    pool: asyncpg.Pool[Any],
    engine: Engine,
    async_engine: AsyncEngine,
    maker: sessionmaker[Session],
    async_maker: async_sessionmaker[AsyncSession],
    conn: psycopg.AsyncConnection[Any],
    sync: psycopg.Connection[Any],
) -> None:
    await app.enqueue(pool, new)  # rejected
    await app.enqueue(async_engine, new)  # rejected
    await app.enqueue(async_maker, new)  # rejected
    await app.enqueue(conn.cursor(), new)  # rejected
    await app.enqueue("postgresql://", new)  # rejected
    await app.enqueue(None, new)  # rejected
    app.sync.enqueue(engine, new)  # rejected
    app.sync.enqueue(maker, new)  # rejected
    app.sync.enqueue(sync.cursor(), new)  # rejected
    app.sync.enqueue("postgresql://", new)  # rejected


async def no_jobs(conn: psycopg.AsyncConnection[Any], sync: psycopg.Connection[Any]) -> None:
    await app.enqueue(conn, send_receipt)  # rejected: a kind is not a job
    await app.enqueue(conn, [new])  # rejected: many
    await app.enqueue_many(conn, new)  # rejected: one
    await app.enqueue(conn, "receipt.send", 1)  # rejected: names and arguments
    await app.enqueue(conn, send_receipt(Job(id=1, kind="", state=None), 1))  # rejected: a call is not a job
    app.sync.enqueue(sync, send_receipt)  # rejected: a kind is not a job
    app.sync.enqueue(sync, new, delay=1)  # rejected: options are the job's


async def results(conn: psycopg.AsyncConnection[Any]) -> None:
    app.enqueue(conn, new)  # rejected: forgotten await
    app.enqueue_many(conn, [new])  # rejected: forgotten await
    app.cancel(conn, 1)  # rejected: forgotten await
    as_int: Handle[int] = await app.enqueue(conn, new)  # rejected: returns str
    handle: Handle[str] = app.enqueue(conn, new)  # rejected: forgotten await
    many: list[Handle[int]] = await app.enqueue_many(conn, [new])  # rejected: returns str
    handle.id = 1  # rejected: frozen
    print(as_int, many)
