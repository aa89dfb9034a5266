"""Waking: one listening connection per database turns notifications into calls. Polling is always there underneath."""

from __future__ import annotations

import asyncio
import math
import re
from typing import TYPE_CHECKING, Any, Protocol

from psycopg import sql

from holdfast.engine.keeper import unwatched
from holdfast.engine.link import SHORTEST_PAUSE, connect, sever, severed_after
from holdfast.engine.outage import Outage
from holdfast.logs import Log
from holdfast.store.lease import Held
from holdfast.store.sleeper import CHANNEL, channel_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from holdfast.engine.keeper import Turn

log = Log(__name__)

# A server that has not begun to tell us things within this many seconds is asked anew.
LISTEN_SECONDS = 5.0

EVENTS = "holdfast.event"
"""The notification that something was published."""

_LOST_CLAIM = re.compile(r"lost ([0-9]{1,18}) ([0-9]{1,18}) [a-z_]{1,30}")


class Waker(Protocol):
    """Runs for as long as a worker does, and calls it when something may be due. It may be deaf, and never fails."""

    listening: asyncio.Event
    """Set while what PostgreSQL notifies reaches us. Only then does a sleeper rely on being woken."""

    async def run(self, turn: Turn = unwatched) -> None: ...
    def rename(self, worker: int) -> None: ...


class Listener:
    """Listens for as long as it runs. While it cannot, `listening` is not set, and sleepers sleep by polling."""

    def __init__(
        self, url: str, *, worker: int, on_wake: Callable[[str], None], on_lost: Callable[[Held], None]
    ) -> None:
        """`on_wake(queue)`: something may be due. `on_lost(claim)`: a claim may have been taken away or called off."""
        self._url = url
        self.worker = worker
        self._on_wake = on_wake
        self._on_lost = on_lost
        self.listening = asyncio.Event()
        self._conn: psycopg.AsyncConnection[Any] | None = None

    def rename(self, worker: int) -> None:
        """Listen for another worker's id, on a new connection."""
        self.worker = worker
        if self._conn is not None:
            sever(self._conn)

    async def run(self, turn: Turn = unwatched) -> None:
        outage = Outage(log, "wake-ups interrupted, polling")
        rest = SHORTEST_PAUSE
        while True:
            turn(LISTEN_SECONDS)
            try:
                async with await connect(self._url) as conn:
                    with severed_after(conn, LISTEN_SECONDS):
                        for channel in (CHANNEL, channel_of(self.worker)):
                            await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                    self.listening.set()
                    outage.over()
                    turn(math.inf)
                    # What was sent before we listened is not heard: look once.
                    self._on_wake("")
                    self._conn = conn
                    async for notification in conn.notifies():
                        hear(notification.payload, on_wake=self._on_wake, on_lost=self._on_lost)
            except Exception as exc:  # noqa: BLE001 - whatever it is, it is said, and polling goes on
                rest = outage.failed(exc)
            finally:
                self.listening.clear()
            await asyncio.sleep(rest)


def hear(text: str, *, on_wake: Callable[[str], None], on_lost: Callable[[Held], None]) -> None:
    """Understand a notification. Anybody may send one: it is a reason to look, and nothing it says is believed."""
    if lost := _LOST_CLAIM.fullmatch(text):
        on_lost(Held(int(lost[1]), int(lost[2])))
    else:
        on_wake(text)
