"""One connection to one database that reconnects by itself."""

from __future__ import annotations

import asyncio
import math
import os
import random
import socket
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psycopg
from psycopg import capabilities
from psycopg.pq import TransactionStatus

from holdfast import _drivers as drivers
from holdfast._engine.address import connect
from holdfast._logs.failure import Failure
from holdfast._model.errors import WrongIsolation
from holdfast._store.inspect import is_read_only, read_isolation
from holdfast._store.statement import names_nothing, pin_names, pin_plans

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from holdfast._logs.log import Log
    from holdfast._store.inspect import IsolationLevels
    from holdfast._store.statement import Statement


T = TypeVar("T")

SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 1.0
# After this many failures in a row, so that a large fleet does not keep a server busy that has just come back.
MANY_FAILURES = 10
LONG_PAUSE = 3.0
# A severed statement fails within this many seconds.
ABANDON_SECONDS = 0.5
# A statement that shares the connection with outcomes is given up after this many seconds.
SHORT_SECONDS = 2.0
# Before a statement is severed, the server gets this many seconds to cancel it.
CANCEL_SECONDS = 0.25
# The server is unreachable, in recovery or read-only: all of these are temporary.
LOST = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction)
# Called when a statement of any link has ended. Only tests set it: they wait for what the engine does.
on_statement: Callable[[], None] | None = None


class GivenUp(psycopg.OperationalError):
    """The link was abandoned at the stop of its worker: a statement came too late."""


class Link:
    """Runs statements one at a time. After a failure the next statement reconnects."""

    def __init__(self, url: str, *, timeout: float, usual: float = math.inf, plain: bool = False) -> None:
        """`timeout`: seconds after which a statement without an answer counts as lost.

        `usual`: the limit of statements that are given no other. Default: the timeout.
        `plain`: whether plain statements claim or finish jobs here, whose plans must not depend on statistics.
        """
        self._url = url
        self._timeout = timeout
        self._usual = usual
        self._plain = plain
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._pooled = False
        self._abandoned = False
        self._giving_up: asyncio.Task[None] | None = None
        self._connecting: asyncio.Timeout | None = None
        self._lock = asyncio.Lock()
        self._asked_at: float | None = None
        self._lost = False
        self.unanswered: bool = False
        """Whether the last statement ended without an answer. It may still take effect."""
        self.cut_off: bool = False
        """Whether the last statement lost its connection before its time was up."""
        self.openings: int = 0
        """How many connections it has opened, each maybe to another server."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, statement: Statement[T], *, seconds: float | None = None) -> T:
        """Run the statement, and give it up after `seconds`, if that is less than the timeout of the link."""
        return await self.run_with(lambda conn: self._ask(conn, statement), seconds=seconds)

    async def run_in_turn(self, make: Callable[[], Statement[T]]) -> T:
        """Run the statement that `make()` returns. It is called once all earlier statements have ended."""
        return await self.run_with(lambda conn: self._ask(conn, make()))

    async def run_with(
        self, function: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]], *, seconds: float | None = None
    ) -> T:
        """Run a function that takes a connection. `seconds`: see `run`."""
        async with self._lock:
            self._asked_at = time.monotonic()
            try:
                conn = await self._connected()
                timer = self._give_up_after(min(seconds or self._usual, self._timeout))
                try:
                    answer = await function(conn)
                finally:
                    timer.cancel()
            except BaseException as exc:
                # Without an answer it is unknown whether the statement took effect, and the next statement must not
                # read half of its answer. A session may stay read-only after the server has become writable.
                idle = self._conn is not None and self._conn.info.transaction_status is TransactionStatus.IDLE
                self.unanswered = self._conn is not None and not idle
                given_up = self._giving_up is not None
                self.cut_off = self.unanswered and not given_up
                self._lost = not idle or given_up or isinstance(exc, psycopg.errors.ReadOnlySqlTransaction)
                if self._lost:
                    await self.close()
                if isinstance(exc, Exception) and (task := asyncio.current_task()) is not None and task.cancelling():
                    # A cancelled driver waits for the server, and may lose the connection while it waits.
                    raise asyncio.CancelledError from exc
                raise
            else:
                self._lost = self.unanswered = self.cut_off = False
                if self._giving_up is not None:
                    await self.close()  # the request to cancel may still be under way, and must not reach the next one
                return answer
            finally:
                self._asked_at = None
                if on_statement is not None:
                    on_statement()

    @property
    def connected(self) -> bool:
        """Whether there is a connection. If not, the next statement opens one, maybe to another server."""
        return self._conn is not None and not self._conn.closed

    @property
    def takes_plain(self) -> bool:
        """Whether the connection can take plain statements: through a pooler, each costs a transaction."""
        return self._plain and self.connected and not self._pooled

    @property
    def busy(self) -> bool:
        """Whether a statement is under way."""
        return self._asked_at is not None

    def silent(self, seconds: float) -> bool:
        """Return whether the last statement was lost, or the current one has waited longer than `seconds`."""
        return self._lost or (self._asked_at is not None and time.monotonic() - self._asked_at > seconds)

    async def probe(self) -> None:
        """Raise if the database does not answer or cannot be written. After a lost connection it uses a new one."""
        if await self.run(is_read_only()):
            raise psycopg.errors.ReadOnlySqlTransaction("the server is read-only")

    def doubt(self, seconds: float) -> None:
        """Give up a statement that has waited for `seconds`: the server answers on no other connection either."""
        if self._asked_at is not None and time.monotonic() - self._asked_at > seconds:
            self.give_up()

    async def _ask(self, conn: psycopg.AsyncConnection[Any], statement: Statement[T]) -> T:
        if not self._pooled or names_nothing(statement.sql):
            return await drivers.run(conn, statement)
        # A pooler's session is shared, so its settings must not change. Not as a pipeline: through PgBouncer 1.18, with
        # more clients than connections to the server, statements of pipelines were not answered.
        async with conn.transaction():
            await drivers.run(conn, pin_names(local=True))
            return await drivers.run(conn, statement)

    def hurry(self, seconds: float) -> None:
        """Limit every statement to `seconds` from now on, including the current one."""
        self._timeout = min(self._timeout, seconds)
        loop = asyncio.get_running_loop()
        if self._connecting is not None and not self._connecting.expired():
            self._connecting.reschedule(loop.time() + self._timeout)
        elif self._conn is not None and self._lock.locked():
            self._give_up_after(self._timeout)

    def _give_up_after(self, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds - min(CANCEL_SECONDS, seconds / 2), self.give_up)

    def give_up(self) -> None:
        """End the current statement without its answer, if it gets none now."""
        if self._conn is not None and self.busy and self._giving_up is None:
            # PgBouncer 1.18 may crash when it passes on a request to cancel.
            self._giving_up = asyncio.create_task(cancel_or_sever(self._conn, CANCEL_SECONDS, cancel=not self._pooled))

    async def abandon(self) -> None:
        """Sever the current statement, let waiting ones fail, and close for good."""
        self._abandoned = True
        if self._lock.locked():
            self.hurry(0.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(ABANDON_SECONDS), self._lock:
                    pass
        await self.close()

    async def close(self) -> None:
        conn, self._conn = self._conn, None
        giving_up, self._giving_up = self._giving_up, None
        if giving_up is not None:
            giving_up.cancel()
        if conn is not None:
            await conn.close()

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._abandoned:
            raise GivenUp("the connection was given up")
        if self._conn is None or not self.connected:
            try:
                async with asyncio.timeout(self._timeout) as self._connecting:
                    conn = self._conn = await connect(self._url, seconds=self._timeout)
            finally:
                self._connecting = None
            with severed_after(conn, self._timeout):
                self._pooled = await behind_pooler(conn)
                if self._pooled:
                    conn.prepare_threshold = None
                else:
                    await drivers.run(conn, pin_names(local=False))
                    if self._plain:
                        await drivers.run(conn, pin_plans())
            self.openings += 1
        return self._conn


class Links:
    """A worker's connections to the database `name`: claims do not wait for outcomes that are being written.

    A third one, `apart`, is open only while there are outcomes that could not be written.
    """

    def __init__(self, url: str, *, name: str, timeout: float) -> None:
        self.url = url
        self.name = name
        self.timeout = timeout
        self.claim: Link = Link(url, timeout=timeout, plain=True)
        self.finish: Link = Link(url, timeout=timeout, usual=SHORT_SECONDS, plain=True)
        self.apart: Link = Link(url, timeout=timeout)
        self._all = (self.claim, self.finish, self.apart)

    def doubt(self, seconds: float) -> None:
        """Give up statements that have waited for `seconds`."""
        for link in self._all:
            link.doubt(seconds)

    def hurry(self, seconds: float) -> None:
        """Limit every statement to `seconds` from now on, including current ones."""
        for link in self._all:
            link.hurry(seconds)

    async def abandon(self) -> None:
        """Sever current statements, let waiting ones fail, and close all for good."""
        await asyncio.gather(*(link.abandon() for link in self._all))


@contextmanager
def severed_after(conn: psycopg.AsyncConnection[Any], seconds: float) -> Iterator[None]:
    """Sever the connection if the block takes longer. A timeout is not enough: a cancelled statement waits."""
    timer = asyncio.get_running_loop().call_later(seconds, sever, conn)
    try:
        yield
    finally:
        timer.cancel()


def sever(conn: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """End a statement without an answer by shutting down its socket. Safe to call from any thread.

    Cancelling would be a request to the server, and would wait for its answer again.
    """
    with suppress(OSError, *LOST), socket.socket(fileno=os.dup(conn.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


async def cancel_or_sever(conn: psycopg.AsyncConnection[Any], seconds: float, *, cancel: bool) -> None:
    """Ask the server to cancel the current statement, and sever the connection unless it ends within `seconds`.

    A statement that is only severed continues at the server: it may wait for a lock and take effect much later.
    `cancel`: False severs without asking the server.
    """
    try:
        async with asyncio.timeout(seconds):
            if cancel and capabilities.has_cancel_safe():
                with suppress(*LOST):
                    await conn.cancel_safe(timeout=seconds)
            await asyncio.sleep(seconds)
    except TimeoutError:
        sever(conn)


async def behind_pooler(conn: psycopg.AsyncConnection[Any]) -> bool:
    """Return whether a pooler answers for the server: then a prepared statement may reach another session."""
    row = await (await conn.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False)).fetchone()
    return row is None or row[0] != conn.info.backend_pid


def pin_names_of(conn: psycopg.Connection[Any]) -> bool:
    """Pin how names resolve in our own session. False: it belongs to a pooler and is left unchanged."""
    row = conn.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False).fetchone()
    if row is None or row[0] != conn.info.backend_pid:
        return False
    drivers.run_sync(conn, pin_names(local=False))
    return True


def longest_pause(failures: int) -> float:
    """Return how many seconds the wait before the next attempt may last: 0.1 to 1, and 3 after many failures."""
    return LONG_PAUSE if failures >= MANY_FAILURES else min(LONGEST_PAUSE, SHORTEST_PAUSE * 2.0**failures)


def pause(failures: int) -> float:
    """Return how many seconds to wait before the next attempt, at random."""
    longest = longest_pause(failures)
    return random.uniform(longest / 2, longest)  # noqa: S311 - it spreads load, and is not used for security


def traceback_for(exc: BaseException) -> BaseException | None:
    """Return the exception if the log should show its traceback, or None if the server is just unreachable."""
    return None if isinstance(exc, (*LOST, TimeoutError)) else exc


SAY_EVERY = 60.0


class Outage:
    """Consecutive failures of one operation. Each error is logged once a minute, so long outages stay readable."""

    def __init__(self, log: Log, message: str, **extra: object) -> None:
        """`extra`: additional fields of each log line."""
        self._log = log
        self._message = message
        self._extra = extra
        self._failing_since = 0.0
        self._last_logged: dict[str, float] = {}
        self.failures = 0

    @property
    def seconds(self) -> float:
        """How many seconds it has lasted; 0 without a failure."""
        return time.monotonic() - self._failing_since if self.failures else 0.0

    def failed(self, exc: BaseException) -> float:
        """Note a failure, and return how many seconds to wait before the next attempt."""
        now = time.monotonic()
        if not self.failures:
            self._failing_since = now
        self.failures += 1
        error = type(exc).__name__
        if now - self._last_logged.get(error, -SAY_EVERY) >= SAY_EVERY and not isinstance(exc, GivenUp):
            self._last_logged[error] = now
            extra = {**self._extra, "error": error, "why": Failure.of(exc).text, "failures": self.failures}
            self._log.warning(self._message, extra=extra, exc_info=traceback_for(exc))
        return pause(self.failures - 1)

    def over(self) -> None:
        """Note a success."""
        if self.failures:
            extra = {**self._extra, "failures": self.failures, "seconds": round(self.seconds, 1)}
            self._log.info("%s: it works again", self._message, extra=extra)
            self.failures = 0
            self._last_logged.clear()


def too_strict(found: IsolationLevels) -> str | None:
    """Return advice if a finish would not see jobs that a claim parks meanwhile; None if it would."""
    if found.level == "read committed":
        return None
    return (
        f"a transaction is {found.level.upper()} by default, and a worker needs READ COMMITTED: "
        f"ALTER ROLE {found.user} SET default_transaction_isolation = 'read committed'"
    )


async def check_isolation(conn: psycopg.AsyncConnection[Any]) -> None:
    """Raise if the default isolation level is too strict. Setting it here would not work through a pooler."""
    problem = too_strict(await drivers.run(conn, read_isolation()))
    if problem is not None:
        raise WrongIsolation(f"{conn.info.dbname}: {problem}")
