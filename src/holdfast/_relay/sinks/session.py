"""The common part of the sinks of brokers: a connection that is re-established whenever it is lost."""

from __future__ import annotations

import asyncio
import math
import random
from abc import abstractmethod
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, TypeAlias
from urllib.parse import urlsplit

from holdfast._distribution import require
from holdfast._engine.keeper import Keeper
from holdfast._logs.log import Log
from holdfast._logs.masking import mask
from holdfast._model.duration import DAY, MORE_THAN_ZERO, Duration, as_timedelta
from holdfast._relay.message import Refused, Sink, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from holdfast._engine.keeper import Turn
    from holdfast._relay.message import Message, Publish, Receipt


log = Log(__name__)

# Pause between two connection attempts, in seconds, chosen at random.
SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 1.0


class BrokerSession(Protocol):
    """One connection, from connect to loss."""

    async def publish(self, message: Message) -> None:
        """Return when confirmed. Raise Unavailable if the connection is closed."""

    async def lost(self) -> None:
        """Return, or raise the cause, when the connection is lost."""


Connect: TypeAlias = "Callable[[], AbstractAsyncContextManager[BrokerSession]]"


def timeout_seconds(timeout: Duration) -> float:
    """Return the timeout of a sink in seconds, checked: at most a day."""
    return as_timedelta("timeout", timeout, least=MORE_THAN_ZERO, limit=DAY).total_seconds()


@dataclass(frozen=True)
class BrokerSink(Sink):
    """A sink that keeps a connection to a broker."""

    needs: ClassVar[tuple[str, str, str]]
    """The broker's name, the extra to install, and its library."""

    url: str = field(repr=False)
    _: KW_ONLY
    timeout: Duration = 10
    """For connecting and for each confirmation, in seconds or a timedelta. Default 10 s."""

    def __post_init__(self) -> None:
        broker, extra, library = self.needs
        require(f"a relay to {broker}", extra, library)
        timeout_seconds(self.timeout)

    @property
    def name(self) -> str:
        return public(self.url)

    def open(self) -> AbstractAsyncContextManager[Publish]:
        return keep(self.name, self.connect, seconds=timeout_seconds(self.timeout))

    @abstractmethod
    def connect(self) -> AbstractAsyncContextManager[BrokerSession]:
        """Connect once."""


@asynccontextmanager
async def keep(name: str, connect: Connect, *, seconds: float) -> AsyncIterator[Publish]:
    """Yield a publish function that survives reconnects. If the broker is down, publishing raises, not this function.

    A confirmation or a connection that takes longer than `seconds` ends the connection.
    """
    connection = _Connection(name, connect, seconds)
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
        """Set in addition to the cancellation, because a broker's library may swallow that."""
        self._name = name
        self._connect = connect
        self._seconds = seconds
        self._session: BrokerSession | None = None
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
            # A lone surrogate is valid in JSON but cannot be encoded.
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
                await asyncio.sleep(random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))  # noqa: S311 - spreads load
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
        except Exception as exc:  # noqa: BLE001 - the next attempt may succeed after any error of a broker's library
            why = f": {type(exc).__name__}"
            if connected or why != self._why:
                log.warning("the connection is lost", extra={"sink": self._name, "error": type(exc).__name__})
            self._why = why

    async def _until_lost(self, session: BrokerSession) -> None:
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


def public(url: str) -> str:
    """Return the addresses without secrets: user, password, webhook path, query. Several are joined by commas.

    >>> public("nats://me:secret@one:4222, nats://two")
    'nats://one:4222,nats://two'
    >>> public("https://hooks.example.com/services/T0/secret")
    'https://hooks.example.com/***'
    """
    return ",".join(_public(one.strip()) for one in url.split(","))


def _public(url: str) -> str:
    # A password may contain characters that end a host name, so cut everything up to the last @ first.
    scheme, separator, rest = url.rpartition("://")
    rest = rest.rpartition("@")[2]
    parts = urlsplit(f"//{rest}")
    return mask(f"{scheme}{separator}{parts.netloc}{parts.path.rstrip('/')}")


class Pattern(NamedTuple):
    """A name built from a message's topic and key.

    >>> Pattern("shop.{topic}")
    Pattern(text='shop.{topic}')
    """

    text: str

    def fill(self, message: Message) -> str:
        if self.text == "{topic}":
            return message.topic
        name = self.text.replace("{topic}", message.topic)
        if "{key}" in name:
            if message.key is None:
                raise Refused(f"{self.text} needs a key, and the message has none")
            name = name.replace("{key}", message.key)
        return name
