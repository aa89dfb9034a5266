"""A broker's connection that is made again whenever it is lost."""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeAlias

from holdfast.engine.keeper import Keeper
from holdfast.logs import Log
from holdfast.relay.message import Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta

    from holdfast.engine.keeper import Turn
    from holdfast.relay.message import Message, Publish, Receipt

log = Log(__name__)

# Seconds between two tries to connect, at random.
SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 1.0


class Session(Protocol):
    """One connection, from its making to its loss."""

    async def publish(self, message: Message) -> None:
        """Return when confirmed. When the connection is closed, raise Unavailable."""

    async def lost(self) -> None:
        """Return, or raise why, when the connection is lost."""


Connect: TypeAlias = "Callable[[], AbstractAsyncContextManager[Session]]"


@asynccontextmanager
async def keep(name: str, connect: Connect, *, timeout: timedelta) -> AsyncIterator[Publish]:  # noqa: ASYNC109 - no deadline of this call
    """Yield a publish that needs no other open(). A broker that is down at first is no error here: publishing says so.

    A confirmation that is not there in time ends the connection, as does a connection that is not made in time.
    """
    connection = _Connection(name, connect, timeout.total_seconds())
    keeper = Keeper(sink=name)
    keeper.start("sink connection", connection.run, detail=name)
    try:
        await connection.tried.wait()
        yield connection.publish
    finally:
        connection.closing = True
        await keeper.stop()


class _Connection:
    def __init__(self, name: str, connect: Connect, seconds: float) -> None:
        self.tried = asyncio.Event()
        self.closing = False
        """Beside the cancellation, which a broker's library may swallow."""
        self._name = name
        self._connect = connect
        self._seconds = seconds
        self._session: Session | None = None
        self._stuck = asyncio.Event()
        self._why = ""

    async def publish(self, message: Message) -> Receipt | None:
        session = self._session
        if session is None:
            raise Unavailable(f"{self._name} cannot be reached{self._why}")
        try:
            async with asyncio.timeout(self._seconds):
                await session.publish(message)
        except TimeoutError:
            if session is self._session:
                self._stuck.set()
            raise Unavailable(f"{self._name} confirmed nothing within {self._seconds:g} s") from None
        except UnicodeEncodeError:
            # Half a surrogate pair: JSON can say it, and nothing can send it.
            raise Refused("a text of the message cannot be encoded") from None
        return None

    async def run(self, turn: Turn) -> None:
        try:
            while True:
                turn(math.inf)
                await self._serve()
                self.tried.set()
                if self.closing:
                    return
                await asyncio.sleep(random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))  # noqa: S311 - spread, not secret
        finally:
            self.tried.set()

    async def _serve(self) -> None:
        connected = False
        try:
            async with asyncio.timeout(self._seconds) as limit, self._connect() as session:
                limit.reschedule(None)
                connected = True
                log.info("connected", extra={"sink": self._name})
                self._stuck.clear()
                self._session = session
                self.tried.set()
                try:
                    await self._until_lost(session)
                finally:
                    self._session = None
                    limit.reschedule(asyncio.get_running_loop().time() + self._seconds)
        except Exception as exc:  # noqa: BLE001 - whatever a broker's library raises, the next try may succeed
            why = f": {type(exc).__name__}"
            if connected or why != self._why:
                log.warning("the connection is lost", extra={"sink": self._name, "error": type(exc).__name__})
            self._why = why

    async def _until_lost(self, session: Session) -> None:
        lost = asyncio.ensure_future(session.lost())
        stuck = asyncio.ensure_future(self._stuck.wait())
        try:
            await asyncio.wait([lost, stuck], return_when=asyncio.FIRST_COMPLETED)
            if lost.done():
                lost.result()
        finally:
            for task in (lost, stuck):
                task.cancel()
            await asyncio.gather(lost, stuck, return_exceptions=True)
        raise ConnectionError("the connection is lost")
