"""The connections a caller may pass, for type checkers.

Optional libraries are described as protocols: if a library is not installed, a type checker treats its classes as Any
and accepts a sync connection where an async one is needed. psycopg is always installed, so its classes are named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import psycopg

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence


class AsyncpgConnection(Protocol):
    """asyncpg's Connection, or the object that its pool's `acquire()` returns."""

    def fetch(self, query: str, /, *args: Any) -> Awaitable[Sequence[Any]]: ...
    def is_in_transaction(self) -> bool: ...


class SqlalchemyAsync(Protocol):
    """AsyncSession, AsyncConnection or async_scoped_session."""

    def execute(self, statement: Any, parameters: Any = ..., /) -> Awaitable[Any]: ...
    def scalars(self, statement: Any, parameters: Any = ..., /) -> Awaitable[Any]: ...


class Rows(Protocol):
    def all(self) -> Sequence[Any]: ...


class SqlalchemySync(Protocol):
    """Session, Connection or scoped_session."""

    def execute(self, statement: Any, parameters: Any = ..., /) -> Rows: ...
    def scalars(self, statement: Any, parameters: Any = ..., /) -> Rows: ...


class DjangoConnection(Protocol):
    """`connections["default"]`."""

    vendor: str
    in_atomic_block: bool

    def cursor(self) -> Any: ...


class DjangoProxy(Protocol):
    """`django.db.connection`, a proxy without attributes of its own."""

    def __getattr__(self, item: str, /) -> Any: ...
    def __contains__(self, key: Any, /) -> bool: ...
    def __delattr__(self, name: str, /) -> None: ...


AsyncConnection: TypeAlias = psycopg.AsyncConnection[Any] | AsyncpgConnection | SqlalchemyAsync
SyncConnection: TypeAlias = psycopg.Connection[Any] | SqlalchemySync | DjangoConnection | DjangoProxy

# The advice when a connection of the other sort was given.
USE_SYNC = "use the same verb of .sync, as in app.sync.enqueue(conn, job)"
USE_ASYNC = "use the same verb without .sync, and await it, as in await app.enqueue(conn, job)"
