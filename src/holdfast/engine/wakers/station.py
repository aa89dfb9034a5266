"""A worker's end of a broker: it calls the bridge, becomes the bridge when none answers, and takes its notes."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.engine.keeper import unwatched
from holdfast.engine.link import pause
from holdfast.engine.wake import Listener, hear
from holdfast.engine.wakers.bridge import BEAT, Bridge, Channels
from holdfast.logs import Log

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.keeper import Turn
    from holdfast.engine.wake import Waker
    from holdfast.engine.wakers.carrier import Carrier, Session
    from holdfast.store.lease import Held

log = Log(__name__)

# A note is a queue's name or the loss of a claim. What is longer is not ours.
LONGEST_NOTE = 512
# Without an answer for this many seconds, at random so that not all try at once, a worker becomes the bridge.
SHORTEST_PATIENCE = 0.3
LONGEST_PATIENCE = 1.0
STEPS = 5

_HERE = re.compile(r"here ([0-9]{1,18})")


def waker(  # noqa: PLR0913 - what waking depends on
    carrier: Carrier | None,
    url: str,
    database: str,
    worker: int,
    listen: bool,  # noqa: FBT001 - as in the settings
    *,
    on_wake: Callable[[str], None],
    on_lost: Callable[[Held], None],
) -> Waker | None:
    """Return what wakes a worker: a station of the broker, else a listener; None: it polls."""
    if carrier is not None:
        return Station(carrier, url, database=database, worker=worker, listen=listen, on_wake=on_wake, on_lost=on_lost)
    return Listener(url, worker=worker, on_wake=on_wake, on_lost=on_lost) if listen else None


class Station:
    """A waker. `listening` is set while a bridge says that it listens for this worker."""

    def __init__(  # noqa: PLR0913 - what waking depends on
        self,
        carrier: Carrier,
        url: str,
        *,
        database: str,
        worker: int,
        listen: bool,
        on_wake: Callable[[str], None],
        on_lost: Callable[[Held], None],
    ) -> None:
        """`listen`: whether this worker may be the bridge."""
        self._carrier = carrier
        self._url = url
        self._worker = worker
        self._may_bridge = listen
        self._on_wake = on_wake
        self._on_lost = on_lost
        self._channels = Channels(f"{carrier.name}.{database}")
        self._own = self._channels.of(worker)
        self._bridge: Bridge | None = None
        self._failures = 0
        self._news = asyncio.Event()
        self._answered = False
        self._called = False
        self._echoed = False
        self._turn: Turn = unwatched
        self.listening = asyncio.Event()

    def rename(self, worker: int) -> None:
        """Be called by another id; the next call is not echoed, and connects anew."""
        self._worker = worker
        self._own = self._channels.of(worker)

    async def run(self, turn: Turn = unwatched) -> None:
        self._turn = turn
        while True:
            turn(BEAT)
            try:
                async with self._carrier.open(self._receive) as session, asyncio.TaskGroup() as tasks:
                    await session.subscribe(self._carrier.open_channel, self._channels.everyone, self._own)
                    tasks.create_task(session.run())
                    await self._stay(session, tasks)
            except Exception as exc:  # whatever a broker's library raises, polling goes on
                level = logging.DEBUG if self._failures else logging.WARNING
                log.log(level, "wake-ups interrupted, polling", extra={"error": _name(exc)})
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    # Before Python 3.13 a group that fails while it is cancelled forgets that it was.
                    raise asyncio.CancelledError from exc
            finally:
                self._bridge = None
                self.listening.clear()
            await asyncio.sleep(pause(self._failures))
            self._failures += 1

    async def _stay(self, session: Session, tasks: asyncio.TaskGroup) -> None:
        """Call, be answered, call again at the bridge's next sign of life."""
        # What producers said while we were not there is not heard: look once.
        self._on_wake("")
        while True:
            self._turn(4 * BEAT)
            self._news.clear()
            self._answered = self._called = self._echoed = False
            await session.publish(self._channels.bridge, f"hello {self._worker}")
            await session.publish(self._own, "echo")
            contending = self._may_bridge and self._bridge is None and not self.listening.is_set()
            await self._hear_within(random.uniform(SHORTEST_PATIENCE, LONGEST_PATIENCE) if contending else BEAT)  # noqa: S311 - spreads load, guards nothing
            if not (self._echoed or self._answered or self._called):
                await self._hear_within(BEAT)
            if not (self._echoed or self._answered or self._called):
                raise TimeoutError("the broker takes messages and delivers none")
            if self._failures:
                log.info("wake-ups are back")
                self._failures = 0
            if self._answered:
                self._news.clear()
                if not self._called:
                    await self._hear_within(1.5 * BEAT)
            elif not self._called:
                self.listening.clear()
                if contending:
                    self._bridge = Bridge(session, self._url, worker=self._worker, channels=self._channels)
                    tasks.create_task(self._be_bridge(self._bridge))

    async def _be_bridge(self, bridge: Bridge) -> None:
        try:
            await bridge.run()
        finally:
            self._bridge = None
        if bridge.impossible:
            log.info("behind a pooler this worker cannot listen for its fleet")
            self._may_bridge = False

    async def _hear_within(self, seconds: float) -> None:
        """Wait in steps: a handler that blocks the loop uses up one of them, and what came meanwhile is heard."""
        for _ in range(STEPS):
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds / STEPS):
                    await self._news.wait()
                    return

    def _receive(self, channel: str, data: bytes) -> None:
        """Take a message; what is too long or unreadable is nobody's."""
        if len(data) > LONGEST_NOTE:
            return
        text = data.decode(errors="replace")
        if channel == self._carrier.open_channel:
            self._on_wake(text)
        elif channel == self._channels.bridge:
            if self._bridge is not None:
                self._bridge.hear(text)
        elif text.startswith("note "):
            hear(text.removeprefix("note "), on_wake=self._on_wake, on_lost=self._on_lost)
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
            if not self.listening.is_set():
                self.listening.set()
                # What was sent before the bridge listened for us is not heard: look once.
                self._on_wake("")

    def _receive_bridge(self, text: str) -> None:
        here = _HERE.fullmatch(text)
        if here and self._bridge is not None:
            self._bridge.meet(int(here[1]))
        if text == "gone":
            self.listening.clear()
        if here or text == "gone":
            self._called = True
            self._news.set()


def _name(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return type(exc).__name__
