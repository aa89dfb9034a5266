"""Dedicated connections with a time limit per statement, so that page views cannot slow down the jobs."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import errors

from holdfast._drivers import run
from holdfast._engine.link import sever
from holdfast._ops.caller import RequestRefused
from holdfast._store.incident import read_lockers
from holdfast._store.inspect import limit_time

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta

    from holdfast._store.statement import Statement

T = TypeVar("T")

# The longest wait for a free connection, and for opening one, in seconds.
WAIT_SECONDS = 5.0
LOCK_SECONDS = 1.0
_CLOSE_SECONDS = 2.0


class Transaction:
    """A transaction whose statements run one after another, each within the time limit."""

    def __init__(self, conn: psycopg.AsyncConnection[Any]) -> None:
        self._conn = conn

    async def run(self, statement: Statement[T]) -> T:
        return await run(self._conn, statement)

    async def try_to_run(self, statement: Statement[T]) -> T | None:
        """Return None if the statement times out; the transaction stays usable."""
        try:
            async with self._conn.transaction():
                return await run(self._conn, statement)
        except errors.QueryCanceled:
            return None


class Connections(ABC):
    """Opens transactions whose statements each take at most `timeout`."""

    def __init__(self, timeout: timedelta) -> None:
        self._seconds = timeout.total_seconds()

    @abstractmethod
    def _connection(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Lend an autocommit connection for one transaction."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections that were opened here."""

    @abstractmethod
    def sever(self) -> None:
        """End every statement under way at once, also if the server does not answer."""

    def reading(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a read-only transaction on one snapshot."""
        return self._transaction(psycopg.IsolationLevel.REPEATABLE_READ, read_only=True)

    def writing(self) -> AbstractAsyncContextManager[Transaction]:
        """Run the block in one read-write transaction."""
        return self._transaction(psycopg.IsolationLevel.READ_COMMITTED, read_only=False)

    @asynccontextmanager
    async def _transaction(
        self, level: psycopg.IsolationLevel, *, read_only: bool
    ) -> AsyncGenerator[Transaction, None]:
        try:
            async with self._begun(level, read_only=read_only) as transaction:
                yield transaction
        except (errors.LockNotAvailable, RequestRefused) as exc:
            if not isinstance(exc, errors.LockNotAvailable) and not isinstance(exc.__cause__, errors.LockNotAvailable):
                raise
            async with self._begun(level, read_only=True) as transaction:
                lockers = await transaction.run(read_lockers())
            if not lockers:
                raise
            message = f"{lockers[0].text}: let it commit, or end it: {lockers[0].cure}"
            raise RequestRefused(503 if read_only else 409, "locked", message) from exc

    @asynccontextmanager
    async def _begun(self, level: psycopg.IsolationLevel, *, read_only: bool) -> AsyncGenerator[Transaction, None]:
        async with self._connection() as conn:
            await conn.set_isolation_level(level)
            await conn.set_read_only(read_only)
            async with conn.transaction():
                await run(conn, limit_time(self._seconds, lock_seconds=min(LOCK_SECONDS, self._seconds / 4)))
                yield Transaction(conn)


class SingleConnection(Connections):
    """A connection that the caller opened and closes. Its errors are the database's own."""

    def __init__(self, conn: psycopg.AsyncConnection[Any], timeout: timedelta) -> None:
        super().__init__(timeout)
        self._conn = conn

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[psycopg.AsyncConnection[Any], None]:
        yield self._conn

    async def close(self) -> None:
        """Leave the connection open: it is the caller's."""

    def sever(self) -> None:
        """End the statement under way. The connection is then of no use."""
        sever(self._conn)


class Pool(Connections):
    """A few connections, opened on first use, so that an application can mount it without a lifespan."""

    def __init__(self, url: str, *, connections: int, timeout: timedelta) -> None:
        from psycopg_pool import AsyncConnectionPool

        super().__init__(timeout)
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]] = AsyncConnectionPool(
            url,
            min_size=0,
            max_size=connections,
            max_waiting=50 * connections,
            timeout=WAIT_SECONDS,
            max_idle=60,
            reconnect_timeout=WAIT_SECONDS,
            kwargs={
                "autocommit": True,
                "prepare_threshold": None,
                "connect_timeout": int(WAIT_SECONDS),
                "application_name": "holdfast ops",
                "client_encoding": "UTF8",
                # Detect a vanished server within seconds.
                "keepalives_idle": 10,
                "tcp_user_timeout": 15_000,
            },
            open=False,
        )
        self._opening = asyncio.Lock()
        self._lent: set[psycopg.AsyncConnection[Any]] = set()

    def sever(self) -> None:
        """End every statement under way. Later ones get new connections."""
        for conn in self._lent:
            sever(conn)

    async def close(self) -> None:
        await self._pool.close(timeout=_CLOSE_SECONDS)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[psycopg.AsyncConnection[Any], None]:
        if self._pool.closed:
            async with self._opening:
                if self._pool.closed:
                    await self._pool.open()
        with _refused():
            async with self._pool.connection() as conn:
                self._lent.add(conn)
                try:
                    yield conn
                finally:
                    self._lent.discard(conn)


# In this order, because some are special cases of later ones.
_REFUSALS: tuple[tuple[tuple[type[psycopg.Error], ...], int, str, str], ...] = (
    ((errors.QueryCanceled,), 503, "too_slow", "The database took too long to answer: ask for less, or again later."),
    ((errors.LockNotAvailable, errors.DeadlockDetected), 409, "busy",
     "Somebody else is changing the same thing: try again."),
    ((errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName), 503, "not_migrated",
     "The schema is missing or old: run `holdfast migrate`."),
    ((errors.InsufficientPrivilege,), 503, "database_refused",
     "This user of the database may not do that: grant it holdfast_operator."),
    ((errors.ReadOnlySqlTransaction, errors.FeatureNotSupported), 503, "database_read_only",
     "This server only reads, as a standby does: ask the primary."),
    ((psycopg.OperationalError,), 503, "database_unreachable", "The database cannot be reached just now."),
)  # fmt: skip


@contextmanager
def _refused() -> Iterator[None]:
    """Translate database errors into refusals, without repeating their text."""
    try:
        yield
    except psycopg.Error as error:
        if type(error).__module__.startswith("psycopg_pool"):
            busy = "Every connection is taken, or the database cannot be reached: try again."
            raise RequestRefused(503, "busy", busy) from error
        for kinds, status, code, message in _REFUSALS:
            if isinstance(error, kinds):
                raise RequestRefused(status, code, message) from error
        raise
