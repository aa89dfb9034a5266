"""The driver for SQLAlchemy: sessions and connections, async and sync, over any PostgreSQL driver."""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from holdfast._model.connection import USE_ASYNC, USE_SYNC
from holdfast._model.errors import UnsupportedConnection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast._store.statement import Row, Statement

_TOKEN = re.compile(r"%\((\w+)\)s|%%|::|:")

_ASYNC = (AsyncSession, AsyncConnection, async_scoped_session)
_SYNC = (Session, Connection, scoped_session)


async def fetch(conn: Any, statement: Statement[Any]) -> Sequence[Row]:
    if not isinstance(conn, _ASYNC):
        raise _unsupported(conn, "an AsyncSession or AsyncConnection", _SYNC, USE_SYNC)
    with _only_postgresql(conn):
        # SQLModel deprecates `execute` of its sessions.
        connection = conn if isinstance(conn, AsyncConnection) else await conn.connection()
        result = await connection.execute(bound(statement.sql), dict(statement.params))
    return [tuple(row) for row in result.all()]


def fetch_sync(conn: Any, statement: Statement[Any]) -> Sequence[Row]:
    if not isinstance(conn, _SYNC):
        raise _unsupported(conn, "a Session or Connection", _ASYNC, USE_ASYNC)
    with _only_postgresql(conn):
        connection = conn if isinstance(conn, Connection) else conn.connection()
        result = connection.execute(bound(statement.sql), dict(statement.params))
    return [tuple(row) for row in result.all()]


def outside_transaction(conn: Any) -> str | None:
    """Return what to write if a statement on this connection commits by itself; None if it does not."""
    with suppress(SQLAlchemyError, AttributeError):  # not a connection: the statement is refused later
        bind = _bind(conn)
        level = None if bind is None else bind.get_execution_options().get("isolation_level")
        if (level or getattr(bind.dialect, "_on_connect_isolation_level", None)) == "AUTOCOMMIT":
            return "`isolation_level` other than AUTOCOMMIT in the engine"
    return None


def transaction(conn: Any) -> Any:  # noqa: ARG001 - all drivers share it
    """Return nothing to begin: a connection in AUTOCOMMIT has no transactions."""
    return nullcontext()


def _bind(conn: Any) -> Any:
    """Return the engine of a session, whose connection may not be open yet, or the connection."""
    if isinstance(conn, async_scoped_session | scoped_session):
        conn = conn()
    found: Any = conn.sync_session if isinstance(conn, AsyncSession) else conn
    return found.get_bind() if isinstance(found, Session) else getattr(found, "sync_connection", found)


@contextmanager
def _only_postgresql(conn: Any) -> Iterator[None]:
    """Explain the error that another database gives for our SQL."""
    try:
        yield
    except DBAPIError as exc:
        if (name := _bind(conn).dialect.name) != "postgresql":
            raise UnsupportedConnection(
                f"conn: this connection is to {name}, and Holdfast needs PostgreSQL: give one to its database"
            ) from exc
        raise


@lru_cache(maxsize=256)
def bound(sql: str) -> TextClause:
    """Return the statement with :name placeholders without declared types: PostgreSQL infers them."""

    def bind(match: re.Match[str]) -> str:
        if match[1] is not None:
            return f"(:{match[1]})"  # text() does not recognize a :name followed by a cast
        return {"%%": "%", ":": r"\:"}.get(match[0], match[0])

    return text(_TOKEN.sub(bind, sql))


def _unsupported(conn: object, needed: str, others: tuple[type[Any], ...], other: str) -> UnsupportedConnection:
    given = f"conn: SQLAlchemy's {type(conn).__qualname__}"
    advice = other if isinstance(conn, others) else "open one, and give that"
    return UnsupportedConnection(f"{given} given where {needed} is needed: {advice}")
