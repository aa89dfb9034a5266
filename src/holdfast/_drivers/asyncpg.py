"""The driver for asyncpg: a Connection, or the object that a pool's `acquire()` returns."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from asyncpg import Connection
from asyncpg.pool import PoolConnectionProxy

from holdfast._model.connection import USE_ASYNC
from holdfast._model.errors import UnsupportedConnection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._store.statement import Row, Statement

_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%")


async def fetch(conn: Any, statement: Statement[Any]) -> Sequence[Row]:
    if not isinstance(conn, Connection | PoolConnectionProxy):
        raise UnsupportedConnection(
            f"asyncpg's {type(conn).__qualname__} is no connection: `async with pool.acquire() as conn`, and give conn"
        )
    sql, names = numbered(statement.sql)
    records = await conn.fetch(sql, *[statement.params[name] for name in names])
    return [tuple(record) for record in records]


def fetch_sync(conn: object, statement: Statement[Any]) -> Sequence[Row]:  # noqa: ARG001 - all drivers share it
    raise UnsupportedConnection(f"asyncpg has async connections only: {USE_ASYNC}")


def outside_transaction(conn: Any) -> str | None:
    """Return what to write if a statement on this connection commits by itself; None if it does not."""
    if not isinstance(conn, Connection | PoolConnectionProxy) or conn.is_closed() or conn.is_in_transaction():
        return None
    return "`async with conn.transaction():`"


def transaction(conn: Any) -> Any:
    """Return a transaction on this connection, as a context manager."""
    return conn.transaction()


@lru_cache(maxsize=256)
def numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return the statement with $1, $2, … placeholders, and the parameter names in that order."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] is None:
            return "%"
        names.append(match[1])
        return f"${len(names)}"

    return _PLACEHOLDER.sub(number, sql), tuple(names)
