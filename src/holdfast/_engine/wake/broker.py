"""Wake-ups through a broker: a worker calls the bridge, becomes the bridge if none answers, and receives its notes."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql

from holdfast._engine.address import connect
from holdfast._engine.keeper import unwatched
from holdfast._engine.link import LOST, behind_pooler, pause, sever, severed_after
from holdfast._engine.wake.listen import LISTEN_SECONDS, Listener, Polling, receive
from holdfast._logs.log import Log
from holdfast._store.sleeper import WORKER_CHANNEL, worker_channel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from psycopg import Notify

    from holdfast._engine.keeper import Turn
    from holdfast._engine.session import Session
    from holdfast._engine.wake.carriers import Carrier, CarrierSession
    from holdfast._engine.wake.listen import Notified, Waker


log = Log(__name__)

# A note is a queue name or a lost claim. Longer messages are not ours.
LONGEST_NOTE = 512
# A worker becomes the bridge after this many seconds without an answer, chosen at random so that not all try at once.
SHORTEST_PATIENCE = 0.3
LONGEST_PATIENCE = 1.0
STEPS = 5

_HERE = re.compile(r"here ([0-9]{1,18})")


def waker(carrier: Carrier | None, session: Session, notified: Notified, *, database: str, listen: bool) -> Waker:
    """Return the waker of a worker in one database, whose identity is `database`.

    `listen`: whether it may listen on a connection of its own. Without that and without a carrier, the worker polls.
    """
    if carrier is not None:
        return BrokerWaker(carrier, session, notified, database=database, listen=listen)
    return Listener(session, notified) if listen else Polling()


class BrokerWaker:
    """A waker that uses a broker. It listens while a bridge confirms that it listens for this worker."""

    def __init__(self, carrier: Carrier, session: Session, notified: Notified, *, database: str, listen: bool) -> None:
        """`database`: its identity, a part of the channels' names. `listen`: whether this worker may be the bridge."""
        self._carrier = carrier
        self._url = session.links.url
        self._row = session.row
        self._listening = session.listening
        self._notified = notified
        self._may_bridge = listen
        self._channels = Channels(f"{carrier.name}.{database}")
        self._bridge: Bridge | None = None
        self._failures = 0
        self._news = asyncio.Event()
        self._answered = False
        self._called = False
        self._echoed = False
        self._turn: Turn = unwatched

    @property
    def _own(self) -> str:
        """The channel of this worker."""
        return self._channels.of(self._row.id)

    def registered_again(self) -> None:
        """Do nothing: the next call gets no echo on the channel of the new id, and so reconnects."""

    def doubt(self, before: float) -> None:
        """End the bridge, if this worker is it and it connected before that moment, by the monotonic clock."""
        if self._bridge is not None:
            self._bridge.doubt(before)

    async def run(self, turn: Turn = unwatched) -> None:
        self._turn = turn
        while True:
            turn(BEAT)
            try:
                async with self._carrier.open(self._receive) as session, asyncio.TaskGroup() as tasks:
                    await session.subscribe(self._carrier.open_channel, self._channels.everyone, self._own)
                    tasks.create_task(session.run())
                    await self._stay(session, tasks)
            except Exception as exc:  # whatever a broker's library raises, polling continues
                level = logging.DEBUG if self._failures else logging.WARNING
                log.log(level, "wake-ups interrupted, polling", extra={"error": _name(exc)})
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    # Before Python 3.13 a task group that fails during cancellation loses the cancellation.
                    raise asyncio.CancelledError from exc
            finally:
                self._bridge = None
                self._listening.clear()
            await asyncio.sleep(pause(self._failures))
            self._failures += 1

    async def _stay(self, session: CarrierSession, tasks: asyncio.TaskGroup) -> None:
        """Call the bridge, wait for its answer, and call again at its next sign of life."""
        # Messages of producers that were sent before the connection did not arrive: look once.
        self._notified.woken("")
        while True:
            self._turn(4 * BEAT)
            self._news.clear()
            self._answered = self._called = self._echoed = False
            await session.publish(self._channels.bridge, f"hello {self._row.id}")
            await session.publish(self._own, "echo")
            contending = self._may_bridge and self._bridge is None and not self._listening.is_set()
            await self._receive_within(random.uniform(SHORTEST_PATIENCE, LONGEST_PATIENCE) if contending else BEAT)  # noqa: S311 - it spreads load
            if not (self._echoed or self._answered or self._called):
                await self._receive_within(BEAT)
            if not (self._echoed or self._answered or self._called):
                raise TimeoutError("the broker takes messages and delivers none")
            if self._failures:
                log.info("wake-ups are back")
                self._failures = 0
            if self._answered:
                self._news.clear()
                if not self._called:
                    await self._receive_within(1.5 * BEAT)
            elif not self._called:
                self._listening.clear()
                if contending:
                    self._bridge = Bridge(session, self._url, worker=self._row.id, channels=self._channels)
                    tasks.create_task(self._be_bridge(self._bridge))

    async def _be_bridge(self, bridge: Bridge) -> None:
        try:
            await bridge.run()
        finally:
            self._bridge = None
        if bridge.impossible:
            log.info("behind a pooler this worker cannot listen for its fleet")
            self._may_bridge = False

    async def _receive_within(self, seconds: float) -> None:
        """Wait in steps: if a handler blocks the loop, one step passes, and messages are still received in the next."""
        for _ in range(STEPS):
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds / STEPS):
                    await self._news.wait()
                    return

    def _receive(self, channel: str, data: bytes) -> None:
        """Handle a message. Messages that are too long or unreadable are ignored."""
        if len(data) > LONGEST_NOTE:
            return
        text = data.decode(errors="replace")
        if channel == self._carrier.open_channel:
            self._notified.woken(text)
        elif channel == self._channels.bridge:
            if self._bridge is not None:
                self._bridge.receive(text)
        elif text.startswith("note "):
            receive(text.removeprefix("note "), self._notified)
        elif channel == self._own:
            self._receive_own(text)
        elif channel == self._channels.everyone:
            self._receive_bridge(text)

    def _receive_own(self, text: str) -> None:
        if text == "echo":
            self._echoed = True
        elif text == "served":
            if not self._answered:
                self._answered = True
                self._news.set()
            if not self._listening.is_set():
                self._listening.set()
                # Notifications from before the bridge listened for this worker did not arrive: look once.
                self._notified.woken("")

    def _receive_bridge(self, text: str) -> None:
        here = _HERE.fullmatch(text)
        if here and self._bridge is not None:
            self._bridge.meet(int(here[1]))
        if text == "gone":
            self._listening.clear()
        if here or text == "gone":
            self._called = True
            self._news.set()


def _name(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return type(exc).__name__


# Seconds between two signs of life of a bridge.
BEAT = 2.0
# A worker that has not called for this many beats is removed.
FORGET_AFTER = 5
# The longest time until a call is answered, in seconds.
TICK = 0.1
# The largest number of workers of one bridge.
MOST = 10_000

_HELLO = re.compile(r"hello ([0-9]{1,18})")


class Channels(NamedTuple):
    """The channels of one database on a broker."""

    prefix: str
    """The carrier's name and the database."""

    @property
    def everyone(self) -> str:
        """From the bridge to all workers."""
        return f"{self.prefix}.all"

    @property
    def bridge(self) -> str:
        """From the workers to the bridge."""
        return f"{self.prefix}.bridge"

    def of(self, worker: int | str) -> str:
        """From the bridge to one worker."""
        return f"{self.prefix}.{worker}"


class Bridge:
    """Runs until its connection is lost or it meets a bridge with a lower worker id. Two bridges only wake twice."""

    def __init__(self, session: CarrierSession, url: str, *, worker: int, channels: Channels) -> None:
        self._session = session
        self._url = url
        self._worker = worker
        self._channels = channels
        self._calls: set[int] = set()
        self._members: dict[int, float] = {}
        self._resigned = False
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._connected_at = 0.0
        self.impossible = False
        """Whether LISTEN cannot work here: the URL leads to a pooler."""

    def receive(self, text: str) -> None:
        """Note a calling worker. The answer follows once the bridge listens for it."""
        if (hello := _HELLO.fullmatch(text)) and len(self._calls) < MOST:
            self._calls.add(int(hello[1]))

    def meet(self, worker: int) -> None:
        """Give way to the bridge of a worker with a lower id."""
        self._resigned = self._resigned or worker < self._worker

    def doubt(self, before: float) -> None:
        """End if it connected before that moment: its server may be gone, and nothing would show it."""
        if self._conn is not None and self._connected_at < before:
            sever(self._conn)

    async def run(self) -> None:
        try:
            async with await connect(self._url) as conn:
                with severed_after(conn, LISTEN_SECONDS):
                    self.impossible = await behind_pooler(conn)
                if not self.impossible:
                    await self._serve(conn)
        except LOST as exc:
            log.debug("the bridge lost its database", extra={"error": type(exc).__name__})

    async def _serve(self, conn: psycopg.AsyncConnection[Any]) -> None:
        self._conn, self._connected_at = conn, time.monotonic()
        await conn.execute(_each("LISTEN", [WORKER_CHANNEL]))
        await self._session.subscribe(self._channels.bridge)
        log.info("this worker passes on the wake-ups of its database")
        try:
            beat = 0.0
            while not self._resigned:
                if time.monotonic() >= beat:
                    await self._session.publish(self._channels.everyone, f"here {self._worker}")
                    await self._forget(conn)
                    beat = time.monotonic() + BEAT
                await self._answer(conn)
                async for notification in conn.notifies(timeout=TICK):
                    await self._forward(notification)
        finally:
            with suppress(Exception):  # if this fails, the workers notice the missing answers
                async with asyncio.timeout(0.5):
                    await self._session.unsubscribe(self._channels.bridge)
                    await self._session.publish(self._channels.everyone, "gone")

    async def _answer(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """Listen for the workers that called, and only then answer them."""
        if not self._calls:
            return
        calls, self._calls = self._calls, set()
        room = MOST - len(self._members)
        if new := [worker for worker in calls if worker not in self._members][:room]:
            await conn.execute(_each("LISTEN", map(worker_channel, new)), prepare=False)
        self._members.update(dict.fromkeys(new, 0.0))
        for worker in calls & self._members.keys():
            self._members[worker] = time.monotonic()
            await self._session.publish(self._channels.of(worker), "served")

    async def _forget(self, conn: psycopg.AsyncConnection[Any]) -> None:
        oldest = time.monotonic() - FORGET_AFTER * BEAT
        if gone := [worker for worker, called in self._members.items() if called < oldest]:
            await conn.execute(_each("UNLISTEN", map(worker_channel, gone)), prepare=False)
            for worker in gone:
                del self._members[worker]

    async def _forward(self, notification: Notify) -> None:
        _, _, worker = notification.channel.partition("_")
        channel = self._channels.of(worker) if worker else self._channels.everyone
        await self._session.publish(channel, f"note {notification.payload}")


def _each(verb: str, channels: Iterable[str]) -> sql.Composed:
    statement = sql.SQL("LISTEN {}" if verb == "LISTEN" else "UNLISTEN {}")
    return sql.SQL("; ").join(statement.format(sql.Identifier(channel)) for channel in channels)
