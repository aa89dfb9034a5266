"""A few dedicated connections with a time limit per statement, so that page views cannot slow down the jobs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout, TooManyRequests

from holdfast._drivers import run
from holdfast._ops.caller import RequestRefused
from holdfast._store.inspect import limit_time

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import timedelta
    from types import TracebackType

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

    async def ask(self, statement: Statement[T]) -> T:
        return await run(self._conn, statement)

    async def try_to_ask(self, statement: Statement[T]) -> T | None:
        """Return None if the statement times out; the transaction stays usable."""
        try:
            async with self._conn.transaction():
                return await run(self._conn, statement)
        except psycopg.errors.QueryCanceled:
            return None


class Pool:
    """Opened on first use, so that an application can mount it without a lifespan."""

    def __init__(self, url: str, *, connections: int, timeout: timedelta) -> None:
        self._seconds = timeout.total_seconds()
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
                # Detect a vanished server within seconds.
                "keepalives_idle": 10,
                "tcp_user_timeout": 15_000,
            },
            open=False,
        )
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.close(timeout=_CLOSE_SECONDS)

    @asynccontextmanager
    async def look(self) -> AsyncGenerator[Transaction, None]:
        """Open a read-only transaction on one snapshot."""
        async with self._transaction(psycopg.IsolationLevel.REPEATABLE_READ, read_only=True) as transaction:
            yield transaction

    @asynccontextmanager
    async def act(self) -> AsyncGenerator[Transaction, None]:
        """Run the block in one read-write transaction."""
        async with self._transaction(psycopg.IsolationLevel.READ_COMMITTED, read_only=False) as transaction:
            yield transaction

    @asynccontextmanager
    async def _transaction(
        self, level: psycopg.IsolationLevel, *, read_only: bool
    ) -> AsyncGenerator[Transaction, None]:
        await self._open()
        with _told():
            async with self._pool.connection() as conn:
                await conn.set_isolation_level(level)
                await conn.set_read_only(read_only)
                async with conn.transaction():
                    await run(conn, limit_time(self._seconds, lock_seconds=min(LOCK_SECONDS, self._seconds / 4)))
                    yield Transaction(conn)

    async def _open(self) -> None:
        if self._pool.closed:
            async with self._opening:
                if self._pool.closed:
                    await self._pool.open()


class _told:  # noqa: N801 - reads as a verb: with _told(): …
    """Translates database errors into refusals, without repeating their text."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        match error:
            case psycopg.errors.QueryCanceled():
                raise RequestRefused(
                    503, "too_slow", "The database took too long to answer: ask for less, or again later."
                ) from error
            case psycopg.errors.LockNotAvailable() | psycopg.errors.DeadlockDetected():
                raise RequestRefused(409, "busy", "Somebody else is changing the same thing: try again.") from error
            case (
                psycopg.errors.UndefinedTable()
                | psycopg.errors.UndefinedFunction()
                | psycopg.errors.InvalidSchemaName()
            ):
                raise RequestRefused(
                    503, "not_migrated", "The schema is missing or old: run `holdfast migrate`."
                ) from error
            case psycopg.errors.InsufficientPrivilege():
                raise RequestRefused(
                    503,
                    "database_refused",
                    "This user of the database may not do that: grant it holdfast_operator.",
                ) from error
            case psycopg.errors.ReadOnlySqlTransaction() | psycopg.errors.FeatureNotSupported():
                raise RequestRefused(
                    503, "database_read_only", "This server only reads, as a standby does: ask the primary."
                ) from error
            case PoolTimeout() | TooManyRequests():
                raise RequestRefused(
                    503, "busy", "Every connection is taken, or the database cannot be reached: try again."
                ) from error
            case psycopg.OperationalError():
                raise RequestRefused(503, "database_unreachable", "The database cannot be reached just now.") from error
            case _:
                pass
