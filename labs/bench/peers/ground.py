"""The ground of the comparison: one PostgreSQL and one Redis for the whole session, a fresh database for each turn."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Self

import psycopg
import redis
from psycopg import sql

from labs.bench.ground import SETTINGS, version
from tools.postgres import Server
from tools.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from labs.bench.peers.peer import Peer

_numbers = count(1)
# Nothing but the statements writes while WAL is counted.
_QUIET = {"full_page_writes": "off", "autovacuum": "off"}


class Ground:
    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        preload: dict[str, str | int] = {"shared_preload_libraries": "pg_stat_statements", "autovacuum": "on"}
        self.server = self._stack.enter_context(Server(version(), **(SETTINGS | preload)))
        self.redis = self._stack.enter_context(RedisServer())
        self.conn = self._stack.enter_context(psycopg.connect(self.server.url(), autocommit=True))
        self.conn.execute("CREATE EXTENSION pg_stat_statements")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def versions(self) -> list[str]:
        row = self.conn.execute("SHOW server_version").fetchone()
        assert row is not None
        with redis.Redis.from_url(self.redis.url) as client:
            info: Any = client.info("server")
        return [f"PostgreSQL {row[0].split()[0]}", f"Redis {info['redis_version']}"]

    @contextmanager
    def database(self, peer: Peer) -> Iterator[str]:
        """Yield the address of a database, or of the Redis, with nothing in it."""
        if peer.store == "redis":
            with redis.Redis.from_url(self.redis.url) as client:
                client.flushall()
            yield f"{self.redis.url}/0"
            return
        name = sql.Identifier(dbname := f"peer_{next(_numbers)}")
        self.conn.execute(sql.SQL("CREATE DATABASE {}").format(name))
        try:
            yield self.server.url(dbname)
        finally:
            self.conn.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Switch off what would write WAL at moments of its own choosing."""
        for name, value in _QUIET.items():
            self.conn.execute(f"ALTER SYSTEM SET {name} = {value}".encode())
        self._reload()
        try:
            yield
        finally:
            for name in _QUIET:
                self.conn.execute(f"ALTER SYSTEM RESET {name}".encode())
            self._reload()

    def checkpoint(self) -> None:
        self.conn.execute("CHECKPOINT")

    def _reload(self) -> None:
        self.conn.execute("SELECT pg_reload_conf()")
        self.checkpoint()
