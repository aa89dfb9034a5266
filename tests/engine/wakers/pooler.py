"""A PgBouncer in transaction mode before a test server: LISTEN does not work through it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psycopg

from tools.broker import Broker, provide

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from tools.postgres import Server

_CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server} user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
ignore_startup_parameters = extra_float_digits
"""


class Pooler(Broker):
    def __init__(self, server: Server) -> None:
        self._program = provide("pgbouncer", "pgbouncer", "install PgBouncer")
        self._server = server
        super().__init__()

    @property
    def url(self) -> str:
        return self.before(self._server.url())

    def before(self, url: str) -> str:
        """Return the address of the same database through the pooler."""
        return url.replace(f":{self._server.port}/", f":{self.port}/")

    def command(self) -> list[str | Path]:
        configuration = self.folder / "pgbouncer.ini"
        configuration.write_text(_CONFIGURATION.format(server=self._server.port, port=self.port))
        user = ["--user", "postgres"] if os.geteuid() == 0 else []
        return [self._program, "--quiet", *user, configuration]

    def is_ours(self, peer: socket.socket) -> bool:  # noqa: ARG002 - PostgreSQL's protocol needs a library
        with psycopg.connect(self.url, prepare_threshold=None) as conn:
            return conn.execute("SHOW data_directory").fetchone() == (str(self._server.data),)
