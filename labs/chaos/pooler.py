"""PgBouncer in transaction mode, that can be sent to another server."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import psycopg

from tools.pgbouncer import PgBouncer

if TYPE_CHECKING:
    from tools.pgbouncer import Upstream

LOOK_EVERY = 0.1


class Pooler(PgBouncer):
    """Before the primary, wherever that is."""

    def __init__(self, upstream: Upstream, user: str) -> None:
        # As an operator sets it who does not want to wait a quarter of a minute after an outage.
        super().__init__(
            upstream, pool_size=20, user=user, server_login_retry=1, server_connect_timeout=2, query_wait_timeout=5
        )
        self.falls: list[str] = []
        """Its last log lines, for each time that it ended by itself."""
        self._upstream = upstream
        self._killed = False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def keep(self) -> None:
        """Look after it, as a service manager does, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.look()

    def look(self) -> None:
        """Start it again if it has ended and the lab did not kill it."""
        if not self.runs() and not self._killed:
            self.falls.append("".join(self.log.splitlines()[-1:]))
            self.__enter__()

    def kill(self) -> None:
        self._killed = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        """Start it again, if it does not run."""
        if not self.runs():
            self.__enter__()
        self._killed = False

    def point_at(self, upstream: Upstream) -> None:
        """Send everybody elsewhere, as an operator does after a failover: the file, and a reload."""
        path = self._folder / "pgbouncer.ini"
        path.write_text(path.read_text().replace(f"port={self._upstream.port} ", f"port={upstream.port} "))
        self._upstream = upstream
        if self._process is not None and self.runs():
            self._process.send_signal(signal.SIGHUP)

    async def explain(self) -> str:
        """Say what it was doing last, and in which state its connections are."""
        output = self.log.splitlines()[-20:]
        try:
            async with await psycopg.AsyncConnection.connect(
                self.url("pgbouncer"), autocommit=True, connect_timeout=5, cursor_factory=psycopg.AsyncClientCursor
            ) as console:
                for question in (b"SHOW POOLS", b"SHOW SERVERS", b"SHOW CLIENTS"):
                    lines = await (await console.execute(question)).fetchall()
                    output += ["  ".join(str(value) for value in line) for line in lines]
        except psycopg.Error as error:
            output.append(f"it does not answer: {error}")
        return "\n".join(output)
