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
    import psycopg

    from holdfast._engine.keeper import Turn
    from holdfast._engine.session import Session

log = Log(__name__)

# Reconnect if LISTEN has no answer within this many seconds.
LISTEN_SECONDS = 5.0

EVENTS = "holdfast.event"
"""The notification that an event was published."""
WAITERS = "holdfast.waiters"
"""The notification that a chain ended for which more jobs wait than one statement releases."""

_LOST_CLAIM = re.compile(r"lost ([0-9]{1,18}) ([0-9]{1,18}) [a-z_]{1,30}")


class Notified(Protocol):
    """The part of a worker that its waker passes notifications on to, for one database.

    A protocol, since `jobs/wakeups.py`, which implements it, wakes loops that themselves use this package.
    """

    def woken(self, text: str) -> None:
        """Look for work: the job or a job of the queue that `text` names may be due, or any if it is empty."""
        ...

    def lost(self, claim: Held) -> None:
        """Check a claim that may have been lost or cancelled."""
        ...


class Waker(Protocol):
    """Calls the worker when a job may be due, for as long as it runs. It may miss notifications, and never fails.

    It sets `Session.listening` while PostgreSQL's notifications arrive.
    """

    async def run(self, turn: Turn = unwatched) -> None: ...
    def registered_again(self) -> None: ...
    def doubt(self, before: float) -> None: ...


class Polling:
    """The waker of a worker that only polls."""

    async def run(self, turn: Turn = unwatched) -> None:
        """Return at once."""

    def registered_again(self) -> None:
        """Do nothing: it listens for no id."""

    def doubt(self, before: float) -> None:
        """Do nothing: it has no connection."""


class Listener:
    """Listens while it runs. When it cannot, `Session.listening` is cleared, and sleepers poll."""

    def __init__(self, session: Session, notified: Notified) -> None:
        self._url = session.links.url
        self._row = session.row
        self._listening = session.listening
        self._notified = notified
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._connected_at = 0.0

    def registered_again(self) -> None:
        """Listen for the new id, on a new connection."""
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
                        for channel in (WORKER_CHANNEL, worker_channel(self._row.id)):
                            await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                    self._listening.set()
                    outage.over()
                    turn(math.inf)
                    # Notifications sent before LISTEN did not arrive: look once.
                    self._notified.woken("")
                    self._conn, self._connected_at = conn, time.monotonic()
                    async for notification in conn.notifies():
                        receive(notification.payload, self._notified)
            except Exception as exc:  # noqa: BLE001 - every error is logged, and polling continues
                rest = outage.failed(exc)
            finally:
                self._listening.clear()
            await asyncio.sleep(rest)


def receive(text: str, notified: Notified) -> None:
    """Parse a notification and call the worker. Any user can send one, so it only triggers a look at the database."""
    if lost := _LOST_CLAIM.fullmatch(text):
        notified.lost(Held(int(lost[1]), int(lost[2])))
    else:
        notified.woken(text)
