"""The driver for psycopg 3, with any row and cursor factories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast._model.connection import USE_ASYNC, USE_SYNC
from holdfast._model.errors import UnsupportedConnection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._store.statement import Row, Statement


async def fetch(conn: object, statement: Statement[Any]) -> Sequence[Row]:
    if not isinstance(conn, psycopg.AsyncConnection):
        raise _unsupported(conn, "a psycopg.AsyncConnection", USE_SYNC)
    cursor = psycopg.AsyncCursor(conn, row_factory=tuple_row)
    await cursor.execute(statement.sql.encode(), statement.params, binary=True)
    return await cursor.fetchall()


def fetch_sync(conn: object, statement: Statement[Any]) -> Sequence[Row]:
    if not isinstance(conn, psycopg.Connection):
        raise _unsupported(conn, "a psycopg.Connection", USE_ASYNC)
    cursor = psycopg.Cursor(conn, row_factory=tuple_row)
    cursor.execute(statement.sql.encode(), statement.params, binary=True)
    return cursor.fetchall()


def outside_transaction(conn: object) -> str | None:
    """Return what to write if a statement on this connection commits by itself; None if it does not."""
    if not isinstance(conn, psycopg.Connection | psycopg.AsyncConnection) or not conn.autocommit:
        return None
    if conn.pgconn.transaction_status != TransactionStatus.IDLE:
        return None
    return (
        "`async with conn.transaction():`"
        if isinstance(conn, psycopg.AsyncConnection)
        else "`with conn.transaction():`"
    )


def transaction(conn: Any) -> Any:
    """Return a transaction on this connection, as a context manager."""
    return conn.transaction()


def _unsupported(conn: object, needed: str, other: str) -> UnsupportedConnection:
    given = f"conn: psycopg.{type(conn).__qualname__}"
    if isinstance(conn, psycopg.AsyncConnection | psycopg.Connection):
        return UnsupportedConnection(f"{given} given where {needed} is needed: {other}")
    return UnsupportedConnection(f"{given} given where {needed} is needed: give the connection itself")
