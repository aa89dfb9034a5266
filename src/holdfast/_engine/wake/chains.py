"""Waiting for chains: one connection per event loop serves all waiting callers, and closes after the last one."""

from __future__ import annotations

import asyncio
import math
import random
import re
import secrets
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._drivers import run_sync
from holdfast._engine.address import watched
from holdfast._engine.link import LOST, Link, behind_pooler, pause, pin_names_of, sever, traceback_for
from holdfast._engine.wake.late import LateChains, late
from holdfast._engine.wake.sleep import RecordedSleep, follow, follow_sync
from holdfast._logs.log import Log
from holdfast._model.errors import HoldfastError
from holdfast._store.chain import MOST, chain_ends, unfinished_job
from holdfast._store.sleeper import chain_channel, forget_watcher, watch_chains, watch_horizon

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast._engine.wake.sleep import Steps
    from holdfast._store.chain import ChainEnd, UnfinishedJob
    from holdfast._store.statement import Statement

log = Log(__name__)

# Seconds between two checks of all chains. A listener checks rarely, and renews its record long before it expires.
RENEW = 5.0
# Without notifications, polling starts with short intervals in seconds, which grow.
POLL_FIRST = 0.1
POLL_LAST = 2.0
# A statement without an answer for this many seconds counts as lost. It must exceed the longest rest, which counts too.
STATEMENT_SECONDS = 2 * RENEW
# A caller that blocks a thread and gets no answer returns this many seconds after its timeout.
GRACE = 1.0
# These errors are permanent: a missing schema, missing privileges.
_HOPELESS = (HoldfastError, psycopg.ProgrammingError)
_ENDED = re.compile(r"ended ([0-9]{1,19})")


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
            raise TimeoutError(late(chain, seconds, await watcher.unfinished(chain))) from watcher.trouble

    def _watcher(self, url: str, *, listen: bool) -> Watcher:
        key = asyncio.get_running_loop(), url
        found = self._found.get(key)
        if found is None or found.task.done():
            found = self._found[key] = Watcher(url, self, listen=listen)
        return found

    def forget(self, loop: asyncio.AbstractEventLoop, url: str) -> None:
        """Forget the watcher of this loop and database: it has no waiting caller."""
        self._found.pop((loop, url), None)


class WatchEnded(Exception):  # noqa: N818 - not an error of the callers: another watcher takes over
    """The watcher ended before the chain."""


class Watcher:
    """Waits for chains in one database. Runs from its first waiting caller to its last."""

    def __init__(self, url: str, watchers: Watchers, *, listen: bool) -> None:
        self.trouble: BaseException | None = None
        """The current error while the database does not answer."""
        self._waiting: dict[int, list[asyncio.Future[ChainEnd]]] = {}
        self._chain_watch = ChainWatch(secrets.token_hex(8))
        self._late = LateChains(url)
        self._link = Link(url, timeout=STATEMENT_SECONDS)
        self._attending: psycopg.AsyncConnection[Any] | None = None
        self._url = url
        self._listen = listen
        self._watchers = watchers
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name="holdfast-watcher")
        self.task.add_done_callback(self._gone)

    async def wait(self, chain: int) -> ChainEnd:
        end: asyncio.Future[ChainEnd] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(chain, []).append(end)
        self._chain_watch.add(chain)
        self._woken.set()
        try:
            return await end
        finally:
            self._leave(chain, end)

    async def unfinished(self, chain: int) -> UnfinishedJob | None:
        """Return the job that a late chain waits for; None if that cannot be found out."""
        return None if self.trouble is not None else await self._late.find(chain)

    def _leave(self, chain: int, end: asyncio.Future[ChainEnd]) -> None:
        others = self._waiting.get(chain, [])
        with suppress(ValueError):
            others.remove(end)
        if not others and self._waiting.pop(chain, None) is not None:
            self._chain_watch.remove(chain)
            self._woken.set()

    def _pass_on_ends(self) -> None:
        ends, self._chain_watch.ends = self._chain_watch.ends, {}
        for chain, end in ends.items():
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
            self._watchers.forget(self._loop, self._url)
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
        self._woken.clear()
        await self._link.run_with(self._attend)
        try:
            rest = await follow(self._link, self._chain_watch.round())
        finally:
            self._pass_on_ends()
        if self._waiting and rest:
            await self._link.run_with(partial(self._rest, rest))

    async def _attend(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """Listen on a new connection, if it can receive notifications."""
        if conn is self._attending:
            return
        polls_only = not self._listen or await behind_pooler(conn)
        if not polls_only:
            conn.add_notify_handler(self._notify)
            await conn.execute(_listening(self._chain_watch))
        self._chain_watch.begin(polls_only=polls_only)
        self._attending = conn

    def _notify(self, notification: psycopg.Notify) -> None:
        if self._chain_watch.note(notification.payload):
            self._woken.set()

    async def _rest(self, seconds: float, conn: psycopg.AsyncConnection[Any]) -> None:
        """Sleep until there is something to read, a caller arrives or leaves, or the time is up."""
        loop, line = asyncio.get_running_loop(), conn.fileno()
        loop.add_reader(line, self._woken.set)
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(line)
        conn.pgconn.consume_input()
        while (notification := conn.pgconn.notifies()) is not None:
            self._chain_watch.note(notification.extra.decode(errors="replace"))


def wait_for_end(url: str, chain: int, *, seconds: float, listen: bool) -> ChainEnd:
    """Return how the chain ended. Raise TimeoutError if it has not within `seconds`. For use without an event loop."""
    chain_watch = ChainWatch(secrets.token_hex(8))
    chain_watch.add(chain)
    deadline = time.monotonic() + seconds
    trouble: Exception | None = None
    unfinished: UnfinishedJob | None = None
    failures = 0
    while not chain_watch.ends and (left := deadline - time.monotonic()) > 0:
        try:
            params = watched(conninfo_to_dict(url), math.ceil(left + GRACE))
            with psycopg.connect(make_conninfo(**params), autocommit=True, prepare_threshold=None) as conn:
                cut = threading.Timer(left + GRACE, sever, [conn])
                cut.start()
                try:
                    _keep(chain_watch, conn, deadline, listen=listen)
                    unfinished = None if chain_watch.ends else run_sync(conn, unfinished_job(chain))
                finally:
                    cut.cancel()
        except LOST as exc:
            trouble = exc
            time.sleep(max(0.0, min(pause(failures), deadline - time.monotonic())))
            failures += 1
    if chain not in chain_watch.ends:
        raise TimeoutError(late(chain, seconds, unfinished)) from trouble
    return chain_watch.ends[chain]


def _keep(chain_watch: ChainWatch, conn: psycopg.Connection[Any], deadline: float, *, listen: bool) -> None:
    """Watch the chain on this connection until it ends or the deadline passes."""
    polls_only = not (pin_names_of(conn) and listen)
    if not polls_only:
        conn.execute(_listening(chain_watch))
    chain_watch.begin(polls_only=polls_only)
    while (left := deadline - time.monotonic()) > 0:
        rest = follow_sync(conn, chain_watch.round())
        if not chain_watch.chains:
            break
        if polls_only:
            time.sleep(min(rest, left))
        else:
            for notification in conn.notifies(timeout=min(rest, left), stop_after=1):
                chain_watch.note(notification.payload)
    if not polls_only:
        run_sync(conn, forget_watcher(chain_watch.listener))


def _listening(chain_watch: ChainWatch) -> sql.Composed:
    return sql.SQL("LISTEN {}").format(sql.Identifier(chain_channel(chain_watch.listener)))


class ChainWatch:
    """Watches any number of chains, each until it has ended."""

    def __init__(self, listener: str) -> None:
        self.listener = listener
        self.chains: set[int] = set()
        """Those that are watched."""
        self.ends: dict[int, ChainEnd] = {}
        """How chains ended that were added, and not removed before."""
        self._notified: set[int] = set()
        self.begin(polls_only=True)

    def begin(self, *, polls_only: bool) -> None:
        """Start again on a new connection: earlier notifications do not count. `polls_only`: it receives none."""
        self._polls_only = polls_only
        self._fresh = set(self.chains)
        """The chains that no record names yet."""
        self._light: set[int] = set()
        """The chains of the light sleep: an older transaction may end them without a notification."""
        self._later: set[int] = set()
        """The chains of the next light sleep."""
        self._recorded = RecordedSleep[str]()
        self._pace = POLL_FIRST
        self._round_at = time.monotonic()

    def add(self, chain: int) -> None:
        if chain not in self.chains:
            self.chains.add(chain)
            self._fresh.add(chain)

    def remove(self, chain: int) -> None:
        self.chains.discard(chain)

    def note(self, text: str) -> bool:
        """Parse a notification. Return whether it is worth a check: any user can send one, so it proves nothing."""
        found = _ENDED.fullmatch(text)
        watched = found is not None and int(found[1]) in self.chains
        if found is not None and watched:
            self._notified.add(int(found[1]))
        return watched

    def round(self) -> Steps[float]:
        """Check what there is to check. Return how many seconds to rest."""
        now = time.monotonic()
        notified, self._notified = self._notified, set()
        fresh, self._fresh = self._fresh & self.chains, set()
        everyone = now >= self._round_at
        asked = self.chains if everyone else fresh | notified
        if self._polls_only:
            self._poll_later(now, fresh=bool(fresh), everyone=everyone)
        else:
            if everyone:
                fresh = yield from self._renew(now, fresh)
            else:
                yield from self._records(fresh)
            asked = asked | (yield from self._look_out(fresh))
        yield from self._look(asked)
        return self._seconds_to_rest()

    def _renew(self, now: float, fresh: set[int]) -> Steps[set[int]]:
        """Record all chains again. Return those whose end may have been missed meanwhile."""
        chains = set(self.chains)
        unbroken = yield from self._recorded.record(self.listener, self._records(chains))
        self._round_at = now + _jittered(RENEW)
        if unbroken:
            return fresh
        self._light.clear()
        return chains

    def _records(self, chains: Iterable[int]) -> Iterator[Statement[None]]:
        return (watch_chains(self.listener, some) for some in _parts(chains))

    def _look_out(self, fresh: set[int]) -> Steps[set[int]]:
        """Look lightly after new chains. Return the chains to check."""
        self._later |= fresh
        self._light &= self.chains
        if not self._light and (self._later & self.chains):
            self._light, self._later = self._later & self.chains, set()
            yield from self._recorded.sleep_lightly(watch_horizon())
        light = self._light
        if not light or time.monotonic() < self._recorded.look_at:
            return set()
        if (yield from self._recorded.settle()):
            self._light = set()
        return light

    def _look(self, chains: Iterable[int]) -> Steps[None]:
        for some in _parts(self.chains.intersection(chains)):
            ends: dict[int, ChainEnd] = yield chain_ends(some)
            for chain, end in ends.items():
                if chain in self.chains:
                    self.chains.remove(chain)
                    self.ends[chain] = end

    def _poll_later(self, now: float, *, fresh: bool, everyone: bool) -> None:
        if fresh:
            self._pace = POLL_FIRST
        elif everyone:
            self._pace = min(self._pace * 1.5, POLL_LAST)
        then = now + _jittered(self._pace)
        self._round_at = then if everyone else min(self._round_at, then)

    def _seconds_to_rest(self) -> float:
        until = self._round_at
        if self._light:
            until = min(until, self._recorded.look_at)
        elif self._later & self.chains:
            until = 0.0
        return max(0.0, until - time.monotonic())


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - it spreads load, and is not used for security


def _parts(chains: Iterable[int]) -> list[list[int]]:
    ordered = sorted(chains)
    return [ordered[start : start + MOST] for start in range(0, len(ordered), MOST)]
