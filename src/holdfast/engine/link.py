"""One connection to one database, that comes back by itself."""

from __future__ import annotations

import asyncio
import os
import random
import re
import socket
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from holdfast import drivers
from holdfast.engine.address import resolved
from holdfast.store.statement import names_nothing, pin_names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import TracebackType

    from holdfast.store.statement import Statement

T = TypeVar("T")

SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 1.0
# A statement that is cut off fails within this time.
ABANDON_SECONDS = 0.5
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


# What a server says of an address that it will refuse tomorrow, too. libpq has no code for it, only the text; in
# another language than English it is taken for something that passes.
_REFUSED = re.compile(
    r'FATAL:\s+(?:(?:database|role) ".*" does not exist|password authentication failed'
    r'|role ".*" is not permitted to log in|no pg_hba\.conf entry|permission denied for database)'
)


def refusal(exc: BaseException) -> str | None:
    """Return the reason when a server refuses a connection for good; None when another try may help.

    A server that is away, starts or stops, or has no connection left, answers otherwise.
    """
    if not isinstance(exc, psycopg.OperationalError) or not _REFUSED.search(said := str(exc)):
        return None
    return said.partition("FATAL:")[2].strip().splitlines()[0]


class Link:
    """Runs statements one at a time. After a failure the next statement connects anew."""

    def __init__(self, url: str, *, timeout: float) -> None:
        """`timeout`: seconds after which a statement that has not answered counts as lost."""
        self._url = url
        self._timeout = timeout
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._pooled = False
        self._abandoned = False
        self._connecting: asyncio.Timeout | None = None
        self._lock = asyncio.Lock()
        self._asked_at: float | None = None
        self._lost = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(self, statement: Statement[T]) -> T:
        return await self.run_with(lambda conn: self._ask(conn, statement))

    async def run_in_turn(self, make: Callable[[], Statement[T]]) -> T:
        """Run what `make()` returns, asked only when all that was given before has ended: it may have changed that."""
        return await self.run_with(lambda conn: self._ask(conn, make()))

    async def run_with(self, function: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        """Run what takes a connection."""
        async with self._lock:
            self._asked_at = time.monotonic()
            try:
                conn = await self._connected()
                with severed_after(conn, self._timeout):
                    answer = await function(conn)
            except BaseException as exc:
                # Unless the server has answered, whether it was done is not known, and a half-read answer must not
                # meet the next statement. A session that may only read may stay so when the server no longer is.
                idle = self._conn is not None and self._conn.info.transaction_status is TransactionStatus.IDLE
                self._lost = not idle or isinstance(exc, psycopg.errors.ReadOnlySqlTransaction)
                if self._lost:
                    await self.close()
                if isinstance(exc, Exception) and (task := asyncio.current_task()) is not None and task.cancelling():
                    # A driver that is cancelled waits for the server, and may lose it over that.
                    raise asyncio.CancelledError from exc
                raise
            else:
                self._lost = False
                return answer
            finally:
                self._asked_at = None

    @property
    def busy(self) -> bool:
        """Whether a statement is under way."""
        return self._asked_at is not None

    def silent(self, seconds: float) -> bool:
        """Whether the last statement was lost, or the one under way has waited so many seconds for its answer."""
        return self._lost or (self._asked_at is not None and time.monotonic() - self._asked_at > seconds)

    async def probe(self) -> None:
        """Ask something that costs nothing, to see whether there is an answer."""
        await self.run_with(behind_pooler)

    async def _ask(self, conn: psycopg.AsyncConnection[Any], statement: Statement[T]) -> T:
        if not self._pooled or names_nothing(statement.sql):
            return await drivers.run(conn, statement)
        # A pooler's session is not ours to change.
        async with conn.transaction():
            await drivers.run(conn, pin_names(local=True))
            return await drivers.run(conn, statement)

    def hurry(self, seconds: float) -> None:
        """Let no statement take longer than this from now on, the one under way included."""
        self._timeout = min(self._timeout, seconds)
        loop = asyncio.get_running_loop()
        if self._connecting is not None and not self._connecting.expired():
            self._connecting.reschedule(loop.time() + self._timeout)
        elif self._conn is not None and self._lock.locked():
            loop.call_later(self._timeout, sever, self._conn)

    async def abandon(self) -> None:
        """Cut off what is under way, let whatever waits for its turn fail, and close for good."""
        self._abandoned = True
        if self._lock.locked():
            self.hurry(0.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(ABANDON_SECONDS), self._lock:
                    pass
        await self.close()

    async def close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._abandoned:
            raise psycopg.OperationalError("the connection was given up")
        if self._conn is None or self._conn.closed:
            try:
                async with asyncio.timeout(self._timeout) as self._connecting:
                    conn = self._conn = await connect(self._url)
            finally:
                self._connecting = None
            with severed_after(conn, self._timeout):
                self._pooled = await behind_pooler(conn)
                if self._pooled:
                    conn.prepare_threshold = None
                else:
                    await drivers.run(conn, pin_names(local=False))
        return self._conn


async def connect(
    url: str, *, autocommit: bool = True, prepare_threshold: int | None = 5
) -> psycopg.AsyncConnection[Any]:
    """Connect, in no thread of the event loop's: handlers may have taken them all."""
    conninfo = make_conninfo(**{**await resolved(url), **CONNECT})
    return await psycopg.AsyncConnection.connect(conninfo, autocommit=autocommit, prepare_threshold=prepare_threshold)


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
    cursor = await conn.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False)
    row = await cursor.fetchone()
    return row is None or row[0] != conn.info.backend_pid


def pin_names_of(conn: psycopg.Connection[Any]) -> bool:
    """Pin the names of a session of our own; False: a pooler's session is not ours, and stays as it is."""
    row = conn.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False).fetchone()
    if row is None or row[0] != conn.info.backend_pid:
        return False
    drivers.run_sync(conn, pin_names(local=False))
    return True


def pause(failures: int) -> float:
    """Return how long to wait before the next try, in seconds: 100 ms to 1 s, jittered."""
    longest = min(LONGEST_PAUSE, SHORTEST_PAUSE * 2.0 ** min(failures, 10))
    return random.uniform(longest / 2, longest)  # noqa: S311 - spreads load, guards nothing


def told(exc: BaseException) -> BaseException | None:
    """Return what deserves a traceback in the log: not that a server is away."""
    return None if isinstance(exc, (*LOST, TimeoutError)) else exc
