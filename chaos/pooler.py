"""PgBouncer in transaction mode, that can be sent to another server."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tools.pgbouncer import PgBouncer

if TYPE_CHECKING:
    from tools.pgbouncer import Upstream


class Pooler(PgBouncer):
    """Before the primary, wherever that is."""

    def __init__(self, upstream: Upstream, user: str) -> None:
        # As an operator sets it who does not want to wait a quarter of a minute after an outage.
        super().__init__(
            upstream, pool_size=20, user=user, server_login_retry=1, server_connect_timeout=2, query_wait_timeout=5
        )
        self._upstream = upstream

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        """Start it again, if it does not run."""
        if self._process is None or self._process.poll() is not None:
            self.__enter__()

    def point_at(self, upstream: Upstream) -> None:
        """Send everybody elsewhere, as an operator does after a failover: the file, and a reload."""
        path = self._folder / "pgbouncer.ini"
        path.write_text(path.read_text().replace(f"port={self._upstream.port} ", f"port={upstream.port} "))
        self._upstream = upstream
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGHUP)
