"""The bridge: one worker of a fleet listens in PostgreSQL for all of them and passes on what it hears."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql

from holdfast.engine.link import LOST, behind_pooler, connect, severed_after
from holdfast.engine.wake import LISTEN_SECONDS
from holdfast.logs import Log
from holdfast.store.sleeper import CHANNEL, channel_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from psycopg import Notify

    from holdfast.engine.wakers.carrier import Session

log = Log(__name__)

# Seconds between two signs of life of a bridge.
BEAT = 2.0
# A worker that has not called for so many beats is gone.
FORGET_AFTER = 5
# Seconds until a call is answered, at most.
TICK = 0.1
# One bridge serves no more workers than this.
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
    """Lasts until its connection is lost or a bridge of a lower worker is heard. Two at once only wake twice."""

    def __init__(self, session: Session, url: str, *, worker: int, channels: Channels) -> None:
        self._session = session
        self._url = url
        self._worker = worker
        self._channels = channels
        self._calls: set[int] = set()
        self._members: dict[int, float] = {}
        self._resigned = False
        self.impossible = False
        """LISTEN hears nothing here: the address leads to a pooler."""

    def hear(self, text: str) -> None:
        """Note who calls; the answer follows once we listen for it."""
        if (hello := _HELLO.fullmatch(text)) and len(self._calls) < MOST:
            self._calls.add(int(hello[1]))

    def meet(self, worker: int) -> None:
        """Give way to the bridge of a lower worker."""
        self._resigned = self._resigned or worker < self._worker

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
        await conn.execute(_each("LISTEN", [CHANNEL]))
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
            with suppress(Exception):  # if it cannot be said, it is noticed by the missing answers
                async with asyncio.timeout(0.5):
                    await self._session.unsubscribe(self._channels.bridge)
                    await self._session.publish(self._channels.everyone, "gone")

    async def _answer(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """Listen for those who called, and only then tell them so."""
        if not self._calls:
            return
        calls, self._calls = self._calls, set()
        room = MOST - len(self._members)
        if new := [worker for worker in calls if worker not in self._members][:room]:
            await conn.execute(_each("LISTEN", map(channel_of, new)), prepare=False)
        self._members.update(dict.fromkeys(new, 0.0))
        for worker in calls & self._members.keys():
            self._members[worker] = time.monotonic()
            await self._session.publish(self._channels.of(worker), "served")

    async def _forget(self, conn: psycopg.AsyncConnection[Any]) -> None:
        oldest = time.monotonic() - FORGET_AFTER * BEAT
        if gone := [worker for worker, called in self._members.items() if called < oldest]:
            await conn.execute(_each("UNLISTEN", map(channel_of, gone)), prepare=False)
            for worker in gone:
                del self._members[worker]

    async def _forward(self, notification: Notify) -> None:
        _, _, worker = notification.channel.partition("_")
        channel = self._channels.of(worker) if worker else self._channels.everyone
        await self._session.publish(channel, f"note {notification.payload}")


def _each(verb: str, channels: Iterable[str]) -> sql.Composed:
    statement = sql.SQL("LISTEN {}" if verb == "LISTEN" else "UNLISTEN {}")
    return sql.SQL("; ").join(statement.format(sql.Identifier(channel)) for channel in channels)
