"""Drivers: each runs one statement on the caller's own connection, in the caller's own transaction.

psycopg.py     runs it on a psycopg 3 connection
asyncpg.py     runs it on an asyncpg connection
sqlalchemy.py  runs it on a SQLAlchemy session or connection
django.py      runs it on a Django connection
steps.py       runs several statements in one transaction
autocommit.py  runs what should commit with the caller's data, and warns where it does not

This file chooses the driver, and translates errors of the database into errors of Holdfast.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._distribution import needed
from holdfast._model.connection import AsyncConnection, SyncConnection
from holdfast._model.errors import (
    AlreadyReplayed,
    ChainAwaited,
    DuplicateJob,
    HoldfastError,
    InvalidEvent,
    InvalidJob,
    SchemaMissing,
    SchemaOutdated,
    UnsupportedConnection,
    WrongIsolation,
)

if TYPE_CHECKING:
    from holdfast._store.statement import Statement

__all__ = ["AsyncConnection", "SyncConnection", "driver_of", "outside_transaction", "run", "run_sync", "state_of"]

T = TypeVar("T")

_POOL = "conn: {} is a pool: take a connection from it, as in `async with pool.connection() as conn`, and give conn"
_UNKNOWN = "conn: expected an open connection of psycopg 3, asyncpg, SQLAlchemy or Django, got {}{}"
_NAMES = {"builtins.NoneType": "None"}
_ADVICE = {
    "builtins.str": ": open one with psycopg.connect(address), and give that",
    "builtins.coroutine": ": await it first",
    "builtins.NoneType": ": open one, and give that",
}
_UNFIT = "a text has a character that cannot be stored: use a database and a connection with the encoding UTF8"
# A library's error may wrap another's, which may wrap the server's.
_DEPTH = 4


async def run(conn: AsyncConnection, statement: Statement[T]) -> T:
    """Run a statement on an asynchronous connection, in its transaction, and return the result."""
    driver = driver_of(conn)
    try:
        return statement.read(await driver.fetch(conn, statement))
    except Exception as exc:
        if (refusal := refused(exc) or _unfit(exc, statement)) is not None:
            raise refusal from exc
        raise


def run_sync(conn: SyncConnection, statement: Statement[T]) -> T:
    """Run a statement on a synchronous connection, in its transaction, and return the result."""
    driver = driver_of(conn)
    try:
        return statement.read(driver.fetch_sync(conn, statement))
    except Exception as exc:
        if (refusal := refused(exc) or _unfit(exc, statement)) is not None:
            raise refusal from exc
        raise


def driver_of(conn: object) -> Any:
    """Return the module that runs statements on this connection."""
    cls: Any = type(conn)
    return _driver_of(cls)


def outside_transaction(conn: object) -> str | None:
    """Return what to write if a statement on this connection commits by itself; None if it does not."""
    cure: str | None = driver_of(conn).outside_transaction(conn)
    return cure


@lru_cache(maxsize=256)
def _driver_of(cls: type[Any]) -> Any:
    """Return the driver of a connection class, chosen by the name of its library, so that no other is imported."""
    for ancestor in cls.__mro__:
        match ancestor.__module__.partition(".")[0]:
            case "psycopg" | "asyncpg" | "sqlalchemy" | "django" as library:
                with needed(f"a connection of {library}", library):
                    return import_module(f"holdfast._drivers.{library}")
            case "psycopg_pool":
                raise UnsupportedConnection(_POOL.format(cls.__qualname__))
            case _:
                pass
    name = f"{cls.__module__}.{cls.__qualname__}"
    if name.startswith("holdfast."):
        name = cls.__qualname__
        advice = ": the connection comes first, then what to do on it"
    else:
        advice = _ADVICE.get(name, "")
    raise UnsupportedConnection(_UNKNOWN.format(_NAMES.get(name, name.removeprefix("builtins.")), advice))


def refused(exc: BaseException) -> HoldfastError | None:
    """Return the Holdfast error for an exception with a known SQLSTATE; None for any other."""
    state, found = _state(exc)
    return None if state is None else _translated(state, found)


def state_of(exc: BaseException) -> str | None:
    """Return the SQLSTATE of an exception of any library; None if it has none."""
    return _state(exc)[0]


def _state(exc: BaseException) -> tuple[str | None, object]:
    """Return the SQLSTATE, and the exception in the chain that has it."""
    found: object = exc
    for _ in range(_DEPTH):
        state = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None)
        if isinstance(state, str):
            return state, found
        found = getattr(found, "orig", None) or getattr(found, "__cause__", None)
    return None, None


def _translated(state: str, exc: object) -> HoldfastError | None:  # noqa: PLR0911 - one line per error
    match state:
        case "HF001":
            return DuplicateJob(next(iter(_ids(exc)), None))
        case "HF002":
            return InvalidJob(_field(exc, "message_primary", "message"))
        case "HF003":
            return WrongIsolation(_field(exc, "message_primary", "message"))
        case "HF004":
            return ChainAwaited(_ids(exc))
        case "HF005":
            return InvalidEvent(_field(exc, "message_primary", "message"))
        case "HF006":
            return AlreadyReplayed(next(iter(_ids(exc)), None))
        case "23502" | "23514" if _broken_rule(exc):
            of_event = (_field(exc, "table_name", "table_name") or "").startswith(("event", "inbox"))
            return (InvalidEvent if of_event else InvalidJob)(_field(exc, "message_primary", "message"))
        case "3F000":
            return SchemaMissing()
        case "42883" if "function holdfast." in (_field(exc, "message_primary", "message") or ""):
            return SchemaOutdated()
        case "42P01" if '"holdfast.' in (_field(exc, "message_primary", "message") or ""):
            return SchemaOutdated()
    return None


def _unfit(exc: BaseException, statement: Statement[Any]) -> HoldfastError | None:
    """Return the error for a text that cannot be stored, because an encoding lacks one of its characters."""
    if statement.unfit is None:
        return None
    state, found = _state(exc)
    if state == "22P05":
        why = _field(found, "message_primary", "message")
    elif isinstance(exc, UnicodeEncodeError):
        why = str(exc)
    else:
        return None
    return statement.unfit(f"{_UNFIT}: {why}")


def _broken_rule(exc: object) -> bool:
    """Return whether a constraint of our tables failed: a missing partition has the same SQLSTATE and names none."""
    if _field(exc, "schema_name", "schema_name") != "holdfast":
        return False
    return bool(_field(exc, "constraint_name", "constraint_name") or _field(exc, "column_name", "column_name"))


def _ids(exc: object) -> list[int]:
    detail = _field(exc, "message_detail", "detail") or ""
    return [int(word) for word in detail.split() if word.isdecimal()]


def _field(exc: object, libpq_name: str, asyncpg_name: str) -> str | None:
    """Return a field of the server's error: psycopg has it in `diag`, asyncpg on the error, SQLAlchemy on its cause."""
    for source in (getattr(exc, "diag", None), exc, getattr(exc, "__cause__", None)):
        for name in (libpq_name, asyncpg_name):
            if isinstance(text := getattr(source, name, None), str):
                return text
    return None
