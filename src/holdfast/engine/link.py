"""One connection to one database, that comes back by itself."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from holdfast import drivers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import TracebackType

    from holdfast.store.statement import Statement

T = TypeVar("T")

SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 1.0
# A peer that is gone without a word is noticed by TCP, not by waiting for ever.
CONNECT: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "application_name": "holdfast",
}
# The server is away, or in recovery or otherwise read-only: all of that passes.
LOST = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction)


class Link:
    """Runs statements one at a time. After a failure the next statement connects anew."""

    def __init__(self, url: str, *, timeout: float) -> None:
        """`timeout`: seconds after which a statement that has not answered counts as lost."""
        self._url = url
        self._timeout = timeout
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(self, statement: Statement[T]) -> T:
        return await self.run_with(lambda conn: drivers.run(conn, statement))

    async def run_with(self, function: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        """Run what takes a connection."""
        async with self._lock:
            try:
                conn = await self._connected()
                with severed_after(conn, self._timeout):
                    return await function(conn)
            except BaseException as exc:
                # Unless the server has answered, whether it was done is not known, and a half-read answer must not
                # meet the next statement. A session that may only read may stay so when the server no longer is.
                idle = self._conn is not None and self._conn.info.transaction_status is TransactionStatus.IDLE
                if not idle or isinstance(exc, psycopg.errors.ReadOnlySqlTransaction):
                    await self.close()
                if isinstance(exc, Exception) and (task := asyncio.current_task()) is not None and task.cancelling():
                    # A driver that is cancelled waits for the server, and may lose it over that.
                    raise asyncio.CancelledError from exc
                raise

    def hurry(self, seconds: float) -> None:
        """Let no statement take longer than this from now on, the one under way included."""
        self._timeout = min(self._timeout, seconds)
        if self._conn is not None and self._lock.locked():
            asyncio.get_running_loop().call_later(self._timeout, sever, self._conn)

    async def close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._conn is None or self._conn.closed:
            async with asyncio.timeout(self._timeout):
                conn = self._conn = await psycopg.AsyncConnection.connect(self._url, autocommit=True, **CONNECT)
            with severed_after(conn, self._timeout):
                if await behind_pooler(conn):
                    conn.prepare_threshold = None
        return self._conn


@contextmanager
def severed_after(conn: psycopg.AsyncConnection[Any], seconds: float) -> Iterator[None]:
    """Let the block take no longer. A timeout would not do: a statement that is cancelled waits for its answer."""
    timer = asyncio.get_running_loop().call_later(seconds, sever, conn)
    try:
        yield
    finally:
        timer.cancel()


def sever(conn: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """End a statement that never answers, from any thread.

    To cancel it would mean to ask the server, and to wait for its answer again.
    """
    with suppress(OSError, *LOST), socket.socket(fileno=os.dup(conn.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


async def behind_pooler(conn: psycopg.AsyncConnection[Any]) -> bool:
    """Tell whether another program answers for the server: then a prepared statement may meet another session."""
    cursor = await conn.execute("SELECT pg_backend_pid()", prepare=False)
    row = await cursor.fetchone()
    return row is None or row[0] != conn.info.backend_pid


def pause(failures: int) -> float:
    """Return how long to wait before the next try, in seconds: 100 ms to 1 s, jittered."""
    longest = min(LONGEST_PAUSE, SHORTEST_PAUSE * 2.0 ** min(failures, 10))
    return random.uniform(longest / 2, longest)  # noqa: S311 - spreads load, guards nothing


def told(exc: BaseException) -> BaseException | None:
    """Return what deserves a traceback in the log: not that a server is away."""
    return None if isinstance(exc, (*LOST, TimeoutError)) else exc
