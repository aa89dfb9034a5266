"""Waiting for chains: one connection per event loop serves all waiting callers, and closes after the last one."""

from __future__ import annotations

import asyncio
import math
import secrets
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from holdfast._drivers import run_sync
from holdfast._engine.link import CONNECT, LOST, Link, behind_pooler, pause, pin_names_of, sever, traceback_for
from holdfast._engine.wake.chains import RENEW, ChainWatch
from holdfast._engine.wake.sleep import follow, follow_sync
from holdfast._logs.log import Log
from holdfast._model.errors import HoldfastError
from holdfast._store.sleeper import chain_channel, forget_watcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._store.chain import ChainEnd

log = Log(__name__)

# A statement without an answer for this many seconds counts as lost. It must exceed the longest rest, which counts too.
STATEMENT_SECONDS = 2 * RENEW
# A caller that blocks a thread and gets no answer returns this many seconds after its timeout.
GRACE = 1.0
# These errors are permanent: a missing schema, missing privileges.
_HOPELESS = (HoldfastError, psycopg.ProgrammingError)


class Watchers:
    """The watchers of an application: one for each event loop and database with a waiting caller."""

    def __init__(self) -> None:
        self._found: dict[tuple[asyncio.AbstractEventLoop, str], Watcher] = {}

    async def wait(self, url: str, chain: int, *, seconds: float, listen: bool) -> ChainEnd:
        """Return how the chain ended. Raise TimeoutError if it has not ended within `seconds`."""
        watcher, failures = self._watcher(url, listen=listen), 0
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        return await watcher.wait(chain)
                    except WatchEnded:
                        await asyncio.sleep(pause(failures))
                        failures += 1
                        watcher = self._watcher(url, listen=listen)
        except TimeoutError:
            raise TimeoutError(_late(chain, seconds)) from watcher.trouble

    def _watcher(self, url: str, *, listen: bool) -> Watcher:
        key = asyncio.get_running_loop(), url
        found = self._found.get(key)
        if found is None or found.task.done():
            found = self._found[key] = Watcher(url, listen=listen, on_gone=partial(self._found.pop, key, None))
        return found


class WatchEnded(Exception):  # noqa: N818 - not an error of the callers: another watcher takes over
    """The watcher ended before the chain."""


class Watcher:
    """Waits for chains in one database. Runs from its first waiting caller to its last."""

    def __init__(self, url: str, *, listen: bool, on_gone: Callable[[], object]) -> None:
        self.trouble: BaseException | None = None
        """The current error while the database does not answer."""
        self._waiting: dict[int, list[asyncio.Future[ChainEnd]]] = {}
        self._chain_watch = ChainWatch(secrets.token_hex(8), self._ended)
        self._link = Link(url, timeout=STATEMENT_SECONDS)
        self._attending: psycopg.AsyncConnection[Any] | None = None
        self._listen = listen
        self._on_gone = on_gone
        self._stir = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name="holdfast-watcher")
        self.task.add_done_callback(self._gone)

    async def wait(self, chain: int) -> ChainEnd:
        end: asyncio.Future[ChainEnd] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(chain, []).append(end)
        self._chain_watch.add(chain)
        self._stir.set()
        try:
            return await end
        finally:
            self._leave(chain, end)

    def _leave(self, chain: int, end: asyncio.Future[ChainEnd]) -> None:
        others = self._waiting.get(chain, [])
        with suppress(ValueError):
            others.remove(end)
        if not others and self._waiting.pop(chain, None) is not None:
            self._chain_watch.remove(chain)
            self._stir.set()

    def _ended(self, chain: int, end: ChainEnd) -> None:
        for waiter in self._waiting.pop(chain, ()):
            if not waiter.done():
                waiter.set_result(end)

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._watch()
                # A caller that arrives meanwhile is handled by the loop.
                if self.trouble is None:
                    with suppress(Exception):
                        await self._link.run(forget_watcher(self._chain_watch.listener))
        finally:
            self._on_gone()
            await self._link.close()

    def _gone(self, task: asyncio.Task[None]) -> None:
        """Pass remaining callers on to another watcher: this one failed, or the event loop ends."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a watcher of chains ended", extra={"error": type(error).__name__}, exc_info=error)
        for waiter in [waiter for waiters in self._waiting.values() for waiter in waiters]:
            if not waiter.done():
                waiter.set_exception(WatchEnded())

    async def _watch(self) -> None:
        failures = 0
        while self._waiting:
            try:
                await self._round()
                failures, self.trouble = 0, None
            except _HOPELESS as exc:
                self._give_up(exc)
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException as exc:
                if not failures:
                    log.warning(
                        "waiting for chains interrupted",
                        extra={"error": type(exc).__name__},
                        exc_info=traceback_for(exc),
                    )
                self.trouble = exc
                await self._link.close()
                await asyncio.sleep(pause(failures))
                failures += 1

    def _give_up(self, exc: Exception) -> None:
        for chain in list(self._waiting):
            self._chain_watch.remove(chain)
            for waiter in self._waiting.pop(chain):
                if not waiter.done():
                    waiter.set_exception(exc)

    async def _round(self) -> None:
        self._stir.clear()
        await self._link.run_with(self._attend)
        quiet = await follow(self._link, self._chain_watch.round())
        if self._waiting and quiet:
            await self._link.run_with(partial(self._rest, quiet))

    async def _attend(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """Listen on a new connection, if it can receive notifications."""
        if conn is self._attending:
            return
        deaf = not self._listen or await behind_pooler(conn)
        if not deaf:
            conn.add_notify_handler(self._hear)
            await conn.execute(_listening(self._chain_watch))
        self._chain_watch.begin(deaf=deaf)
        self._attending = conn

    def _hear(self, notification: psycopg.Notify) -> None:
        if self._chain_watch.hear(notification.payload):
            self._stir.set()

    async def _rest(self, seconds: float, conn: psycopg.AsyncConnection[Any]) -> None:
        """Sleep until there is something to read, a caller arrives or leaves, or the time is up."""
        loop, line = asyncio.get_running_loop(), conn.fileno()
        loop.add_reader(line, self._stir.set)
        try:
            async with asyncio.timeout(seconds):
                await self._stir.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(line)
        conn.pgconn.consume_input()
        while (heard := conn.pgconn.notifies()) is not None:
            self._chain_watch.hear(heard.extra.decode(errors="replace"))


def wait_for_end(url: str, chain: int, *, seconds: float, listen: bool) -> ChainEnd:
    """Return how the chain ended. Raise TimeoutError if it has not within `seconds`. For use without an event loop."""
    ends: list[ChainEnd] = []
    chain_watch = ChainWatch(secrets.token_hex(8), lambda _, end: ends.append(end))
    chain_watch.add(chain)
    deadline = time.monotonic() + seconds
    trouble: Exception | None = None
    failures = 0
    while not ends and (left := deadline - time.monotonic()) > 0:
        try:
            with psycopg.connect(url, autocommit=True, prepare_threshold=None, **_hurried(left)) as conn:
                cut = threading.Timer(left + GRACE, sever, [conn])
                cut.start()
                try:
                    _keep(chain_watch, conn, deadline, listen=listen)
                finally:
                    cut.cancel()
        except LOST as exc:
            trouble = exc
            time.sleep(max(0.0, min(pause(failures), deadline - time.monotonic())))
            failures += 1
    if not ends:
        raise TimeoutError(_late(chain, seconds)) from trouble
    return ends[0]


def _keep(chain_watch: ChainWatch, conn: psycopg.Connection[Any], deadline: float, *, listen: bool) -> None:
    """Watch the chain on this connection until it ends or the deadline passes."""
    deaf = not (pin_names_of(conn) and listen)
    if not deaf:
        conn.execute(_listening(chain_watch))
    chain_watch.begin(deaf=deaf)
    while (left := deadline - time.monotonic()) > 0:
        quiet = follow_sync(conn, chain_watch.round())
        if not chain_watch.chains:
            break
        if deaf:
            time.sleep(min(quiet, left))
        else:
            for notification in conn.notifies(timeout=min(quiet, left), stop_after=1):
                chain_watch.hear(notification.payload)
    if not deaf:
        run_sync(conn, forget_watcher(chain_watch.listener))


def _hurried(seconds: float) -> dict[str, Any]:
    return CONNECT | {"connect_timeout": min(CONNECT["connect_timeout"], math.ceil(seconds + GRACE))}


def _listening(chain_watch: ChainWatch) -> sql.Composed:
    return sql.SQL("LISTEN {}").format(sql.Identifier(chain_channel(chain_watch.listener)))


def _late(chain: int, seconds: float) -> str:
    return f"chain {chain} has not ended within {seconds:g} s"
