"""Listening: one connection per database turns notifications into calls. Polling continues underneath."""

from __future__ import annotations

import asyncio
import math
import re
import time
from typing import TYPE_CHECKING, Any, Protocol

from psycopg import sql

from holdfast._engine.address import connect
from holdfast._engine.keeper import unwatched
from holdfast._engine.link import SHORTEST_PAUSE, Outage, sever, severed_after
from holdfast._logs.log import Log
from holdfast._store.lease import Held
from holdfast._store.sleeper import WORKER_CHANNEL, worker_channel

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from holdfast._engine.keeper import Turn

log = Log(__name__)

# Reconnect if LISTEN has no answer within this many seconds.
LISTEN_SECONDS = 5.0

EVENTS = "holdfast.event"
"""The notification that an event was published."""

_LOST_CLAIM = re.compile(r"lost ([0-9]{1,18}) ([0-9]{1,18}) [a-z_]{1,30}")


class Waker(Protocol):
    """Calls the worker when a job may be due, for as long as it runs. It may miss notifications, and never fails."""

    listening: asyncio.Event
    """Set while PostgreSQL's notifications arrive. Only then does a sleeper rely on being woken."""

    async def run(self, turn: Turn = unwatched) -> None: ...
    def rename(self, worker: int) -> None: ...
    def doubt(self, before: float) -> None: ...


class Polling:
    """The waker of a worker that only polls: `listening` is never set."""

    def __init__(self) -> None:
        self.listening = asyncio.Event()

    async def run(self, turn: Turn = unwatched) -> None:
        """Return at once."""

    def rename(self, worker: int) -> None:
        """Do nothing: it listens for no id."""

    def doubt(self, before: float) -> None:
        """Do nothing: it has no connection."""


class Listener:
    """Listens while it runs. When it cannot, `listening` is cleared, and sleepers poll."""

    def __init__(
        self, url: str, *, worker: int, on_wake: Callable[[str], None], on_lost: Callable[[Held], None]
    ) -> None:
        """`on_wake(queue)`: a job may be due. `on_lost(claim)`: a claim may have been lost or cancelled."""
        self._url = url
        self.worker = worker
        self._on_wake = on_wake
        self._on_lost = on_lost
        self.listening = asyncio.Event()
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._connected_at = 0.0

    def rename(self, worker: int) -> None:
        """Listen for another worker id, on a new connection."""
        self.worker = worker
        self.doubt(math.inf)

    def doubt(self, before: float) -> None:
        """Replace the connection if it was made before that moment, by the monotonic clock.

        Nothing is sent on it, so nothing shows whether its server still answers.
        """
        if self._conn is not None and self._connected_at < before:
            sever(self._conn)

    async def run(self, turn: Turn = unwatched) -> None:
        outage = Outage(log, "wake-ups interrupted, polling")
        rest = SHORTEST_PAUSE
        while True:
            turn(LISTEN_SECONDS)
            try:
                async with await connect(self._url) as conn:
                    with severed_after(conn, LISTEN_SECONDS):
                        for channel in (WORKER_CHANNEL, worker_channel(self.worker)):
                            await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                    self.listening.set()
                    outage.over()
                    turn(math.inf)
                    # Notifications sent before LISTEN did not arrive: look once.
                    self._on_wake("")
                    self._conn, self._connected_at = conn, time.monotonic()
                    async for notification in conn.notifies():
                        hear(notification.payload, on_wake=self._on_wake, on_lost=self._on_lost)
            except Exception as exc:  # noqa: BLE001 - every error is logged, and polling continues
                rest = outage.failed(exc)
            finally:
                self.listening.clear()
            await asyncio.sleep(rest)


def hear(text: str, *, on_wake: Callable[[str], None], on_lost: Callable[[Held], None]) -> None:
    """Parse a notification and call the worker. Any user can send one, so it only triggers a look at the database."""
    if lost := _LOST_CLAIM.fullmatch(text):
        on_lost(Held(int(lost[1]), int(lost[2])))
    else:
        on_wake(text)
