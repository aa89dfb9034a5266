"""Drivers: each runs one statement on the caller's own connection, in the caller's own transaction.

psycopg.py     runs it on a psycopg 3 connection
asyncpg.py     runs it on an asyncpg connection
sqlalchemy.py  runs it on a SQLAlchemy session or connection
django.py      runs it on a Django connection
refusal.py     turns errors of the database into errors of Holdfast
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._drivers.refusal import refused
from holdfast._model.connection import AsyncConnection, SyncConnection
from holdfast._model.errors import UnsupportedConnection

if TYPE_CHECKING:
    from holdfast._store.statement import Statement

__all__ = ["AsyncConnection", "SyncConnection", "run", "run_sync"]

T = TypeVar("T")

_POOL = "{} is a pool: take a connection from it, and give that one"
_UNKNOWN = "{} is no connection of psycopg 3, asyncpg, SQLAlchemy or Django"


async def run(conn: AsyncConnection, statement: Statement[T]) -> T:
    """Run a statement on an asynchronous connection, in its transaction, and return the result."""
    driver = _driver(conn)
    try:
        return statement.read(await driver.fetch(conn, statement))
    except Exception as exc:
        if (refusal := refused(exc)) is not None:
            raise refusal from exc
        raise


def run_sync(conn: SyncConnection, statement: Statement[T]) -> T:
    """Run a statement on a synchronous connection, in its transaction, and return the result."""
    driver = _driver(conn)
    try:
        return statement.read(driver.fetch_sync(conn, statement))
    except Exception as exc:
        if (refusal := refused(exc)) is not None:
            raise refusal from exc
        raise


def _driver(conn: object) -> Any:
    cls: Any = type(conn)
    return _driver_of(cls)


@lru_cache(maxsize=256)
def _driver_of(cls: type[Any]) -> Any:
    """Return the driver of a connection class, chosen by the name of its library, so that no other is imported."""
    for ancestor in cls.__mro__:
        match ancestor.__module__.partition(".")[0]:
            case "psycopg" | "asyncpg" | "sqlalchemy" | "django" as library:
                return import_module(f"holdfast._drivers.{library}")
            case "psycopg_pool":
                raise UnsupportedConnection(_POOL.format(cls.__qualname__))
            case _:
                pass
    raise UnsupportedConnection(_UNKNOWN.format(f"{cls.__module__}.{cls.__qualname__}"))
