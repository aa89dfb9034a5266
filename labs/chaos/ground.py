"""Two PostgreSQL servers, the second a synchronous standby of the first, each behind a proxy; a pooler; a broker."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import psycopg

from labs.chaos.broker import Broker
from labs.chaos.pooler import Pooler
from labs.chaos.proxy import Proxy
from tools.postgres import Server, _unprivileged

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

DATABASE = "chaos"
USER = "chaos"
"""Not a superuser: what PostgreSQL reserves for those is out of its reach, as in production."""
SETTINGS: dict[str, str | int] = {
    "fsync": "on",
    "full_page_writes": "on",
    "max_connections": 120,
    "shared_buffers": "256MB",
    "max_wal_size": "512MB",
    "wal_keep_size": "512MB",
    "wal_level": "replica",
    "hot_standby": "on",
    "max_wal_senders": 8,
    "wal_receiver_status_interval": 1,
    "wal_retrieve_retry_interval": "200ms",
    "wal_receiver_timeout": "3s",
    "wal_sender_timeout": "3s",
    "synchronous_commit": "on",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
}
DISK = "4g"
"""Both servers' data lies in memory, on a volume of this size each, where the lab may mount one."""


class Reachable(Protocol):
    """The part of a ground that workers, producers and the judge need."""

    broker: Broker

    @property
    def url(self) -> str: ...

    @property
    def pooler_url(self) -> str: ...

    async def admin(self) -> psycopg.AsyncConnection[Any]: ...


class Node(Server):
    """One of the two servers, and the proxy that clients reach it through."""

    def __init__(self, name: str) -> None:
        super().__init__(int(os.environ.get("HOLDFAST_CHAOS_POSTGRES", "15")), **SETTINGS)
        self.name = name
        self.proxy = Proxy(self.port)
        self.mounted = os.geteuid() == 0 and _mount(self._folder)
        """Whether the data has a volume of its own, that can be filled."""

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    async def initialize(self) -> None:
        """Make a new, empty cluster."""
        await asyncio.to_thread(self._initialize)
        with (self.data / "pg_hba.conf").open("a") as rules:
            rules.write("host replication postgres 127.0.0.1/32 trust\n")

    async def copy(self, primary: Node) -> None:
        """Become a standby of that server: everything of one's own is thrown away."""
        shutil.rmtree(self.data, ignore_errors=True)
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres", "postgres")
        source = f"host=127.0.0.1 port={primary.port} user=postgres application_name={self.name}"
        command: list[str | Path] = [self._bin / "pg_basebackup", "-D", self.data, "-d", source]
        command += ["--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream", "--no-sync"]
        done = await asyncio.to_thread(
            subprocess.run, _unprivileged(command), cwd=self._folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"pg_basebackup failed:\n{done.stderr}")
        # Whom it waits for when it is promoted one day is not for the copy to say.
        self._set_standbys_in_file("")

    async def open(self) -> None:
        """Start, also again after a stop or a crash, and return when the server answers."""
        if not self.running:
            self._process = None
        self.launch()
        await asyncio.to_thread(self.wait_until_ready)

    async def shut(self, mode: Literal["fast", "immediate"]) -> None:
        """Stop; who does not within its time is killed."""
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.stop, mode, seconds=20)

    async def promote(self) -> None:
        """Let the standby become a primary, and return when it takes writes."""
        async with await connect(self.url()) as conn:
            assert await value(conn, "SELECT pg_promote(true, 30)"), "not promoted within 30 s"

    def _set_standbys_in_file(self, names: str) -> None:
        path = self.data / "postgresql.auto.conf"
        text = re.sub(r"^synchronous_standby_names.*\n", "", path.read_text(), flags=re.MULTILINE)
        path.write_text(f"{text}synchronous_standby_names = '{names}'\n")

    def close(self) -> None:
        super().close()
        if self.mounted:
            subprocess.run(["umount", "--lazy", self._folder], check=False)
            shutil.rmtree(self._folder, ignore_errors=True)


class Ground:
    """`async with` makes it: a primary with a migrated database, a standby in sync, proxies, a pooler and a broker."""

    def __init__(self, *, standby: bool = True) -> None:
        self.primary = Node("one")
        self.standby: Node | None = Node("two") if standby else None
        self.nodes = [node for node in (self.primary, self.standby) if node is not None]
        self.pooler = Pooler(self.primary.proxy, USER)
        self.broker = Broker()
        self.failovers = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.close)
            await self.primary.initialize()
            await self.primary.open()
            await asyncio.to_thread(furnish, self.primary.url)
            if self.standby is not None:
                await self.rebuild()
            for node in self.nodes:
                stack.enter_context(node.proxy)
            stack.enter_context(self.pooler)
            stack.callback(asyncio.create_task(self.pooler.keep()).cancel)
            await stack.enter_async_context(self.broker)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def url(self) -> str:
        """Every node, through its proxy; whichever takes writes answers."""
        hosts = ",".join(f"127.0.0.1:{node.proxy.port}" for node in self.nodes)
        return f"postgresql://{USER}@{hosts}/{DATABASE}?target_session_attrs=read-write"

    @property
    def pooler_url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.pooler.port}/{DATABASE}"

    def admin_url(self) -> str:
        """Straight to the primary, as superuser: no fault of the network is felt there."""
        return self.primary.url(DATABASE)

    async def admin(self) -> psycopg.AsyncConnection[Any]:
        return await connect(self.admin_url())

    async def in_sync(self) -> bool:
        """Whether the standby has everything that was ever acknowledged: only then may it be promoted."""
        async with await self.admin() as conn:
            lsn = await value(conn, "SELECT pg_current_wal_flush_lsn()")
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                if await value(
                    conn,
                    "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'"
                    " AND flush_lsn >= %s AND current_setting('synchronous_standby_names') <> ''",
                    lsn,
                ):
                    return True
                await asyncio.sleep(0.02)
        return False

    async def rebuild(self) -> None:
        """Make the standby anew from the primary, and wait for it with every commit once it streams."""
        assert self.standby is not None
        await self.wait_for_standby(None)
        await self.standby.copy(self.primary)
        await self.standby.open()
        await self.wait_for_standby(self.standby)

    async def wait_for_standby(self, standby: Node | None) -> None:
        """Let commits wait for this standby, when it streams; or for none, as an operator does while there is none."""
        async with await self.admin() as conn:
            deadline = time.monotonic() + 30
            while standby is not None and not await value(
                conn,
                "SELECT count(*) FROM pg_stat_replication WHERE application_name = %s AND state = 'streaming'",
                standby.name,
            ):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the standby does not stream:\n{standby.log[-2000:]}")
                await asyncio.sleep(0.02)
            names = "" if standby is None else standby.name
            await conn.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'".encode())
            await conn.execute("SELECT pg_reload_conf()")

    async def fail_over(self) -> None:
        """Promote the standby in place of a primary that is gone, and send the pooler there."""
        assert self.standby is not None
        assert not self.primary.running, "two primaries would both take writes"
        await self.standby.promote()
        self.primary, self.standby = self.standby, self.primary
        self.pooler.point_at(self.primary.proxy)
        self.failovers += 1


def furnish(url: Callable[[str], str]) -> None:
    """Create the login, the migrated database and the tables of the oracle. `url(database)`: as superuser."""
    from holdfast._store.schema import migrate

    with psycopg.connect(url("postgres"), autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {USER} LOGIN CREATEROLE")
        conn.execute(f"CREATE DATABASE {DATABASE} OWNER {USER}")
    with psycopg.connect(url(DATABASE), user=USER, autocommit=True) as conn:
        migrate(conn)
        conn.execute((Path(__file__).parent / "facts.sql").read_bytes())


async def connect(url: str) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=5)


async def value(conn: psycopg.AsyncConnection[Any], query: str, *params: object) -> Any:
    row = await (await conn.execute(query.encode(), params)).fetchone()
    assert row is not None
    return row[0]


def _mount(folder: Path) -> bool:
    command: list[str | Path] = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", folder]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
