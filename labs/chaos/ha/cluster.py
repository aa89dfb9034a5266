"""Three PostgreSQL servers under Patroni and etcd, HAProxy before them, and a broker."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import psycopg

from labs.chaos.broker import Broker
from labs.chaos.ground import DATABASE, USER, connect, furnish, value
from tools.etcd import Etcd
from tools.haproxy import Backend, HaProxy
from tools.patroni import Member

if TYPE_CHECKING:
    from types import TracebackType

Way = Literal["HAProxy", "several hosts"]
WAYS: tuple[Way, ...] = get_args(Way)
NAMES = ("one", "two", "three")
SETTINGS: dict[str, str | int] = {
    "max_connections": 200,
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "wal_keep_size": "512MB",
    "wal_receiver_status_interval": 1,
}
READY_SECONDS = 90.0
LOOK_EVERY = 0.05


class Cluster:
    """`async with` makes it: a leader with a migrated database, two standbys that stream from it."""

    def __init__(self, way: Way, *, synchronous: bool = True) -> None:
        """`way`: how clients reach the leader. `synchronous`: nothing is acknowledged before a standby has it."""
        self.way = way
        self.synchronous = synchronous
        self.broker = Broker()
        self._etcd = Etcd()
        self.members = [Member(name, self._etcd, synchronous=synchronous, settings=SETTINGS) for name in NAMES]
        self._haproxy = HaProxy([Backend(one.name, one.port, one.api_port) for one in self.members])
        self._leader = self.members[0]
        self.lost: Member | None = None
        """The leader before this one."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for member in self.members:
                stack.callback(member.close)
            stack.enter_context(self._etcd)
            self._leader.start()
            await self.elected(None)
            for member in self.members[1:]:
                member.start()
            await self.whole()
            stack.enter_context(self._haproxy)
            await stack.enter_async_context(self.broker)
            await asyncio.to_thread(furnish, self._leader.url)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(exc, Exception):
            exc.add_note(self._logs())
        await self._stack.aclose()

    @property
    def url(self) -> str:
        """The address of workers and producers."""
        if self.way == "HAProxy":
            return f"postgresql://{USER}@127.0.0.1:{self._haproxy.port}/{DATABASE}"
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        return f"postgresql://{USER}@{hosts}/{DATABASE}?target_session_attrs=read-write&connect_timeout=2"

    @property
    def pooler_url(self) -> str:
        """The same: there is no pooler."""
        return self.url

    @property
    def leader(self) -> Member:
        return self._leader

    def admin_url(self) -> str:
        """Straight to the leader, as superuser."""
        return self._leader.url(DATABASE)

    async def admin(self) -> psycopg.AsyncConnection[Any]:
        return await connect(self.admin_url())

    async def elected(self, lost: Member | None, seconds: float = READY_SECONDS) -> Member:
        """Return the leader once there is another one than `lost`, and it takes writes."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for member in self.members:
                if member is not lost and await _leads(member):
                    self._leader = member
                    return member
            await asyncio.sleep(LOOK_EVERY)
        raise TimeoutError(f"no leader within {seconds} s:\n{self._logs()}")

    async def whole(self, seconds: float = READY_SECONDS) -> None:
        """Return when every other member streams from the leader, and one of them in sync if one should."""
        wanted = len(self.members) - 1
        deadline = time.monotonic() + seconds
        async with await connect(self._leader.url()) as conn:
            while time.monotonic() < deadline:
                streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
                if (
                    await value(conn, streaming) == wanted
                    and (not self.synchronous or await value(conn, f"{streaming} AND sync_state = 'sync'"))
                    and len(self._leader.cluster()) == len(self.members)
                ):
                    return
                await asyncio.sleep(LOOK_EVERY)
        raise TimeoutError(f"the cluster is not whole after {seconds} s:\n{self._logs()}")

    async def senders(self) -> list[int]:
        """Return the pids of the processes that send the leader's log to the standbys."""
        async with await self.admin() as conn:
            return [pid for (pid,) in await (await conn.execute("SELECT pid FROM pg_stat_replication")).fetchall()]

    def standby(self) -> Member:
        """Return the member that would be promoted: in sync, if one is."""
        roles = {one["name"]: one["role"] for one in self._leader.cluster()}
        others = [member for member in self.members if member is not self._leader]
        return next((member for member in others if roles.get(member.name) == "sync_standby"), others[0])

    def _logs(self) -> str:
        return "\n".join(f"--- {member.name}\n{member.log[-4000:]}" for member in self.members)


async def _leads(member: Member) -> bool:
    """Return whether its server takes writes, and Patroni wants that."""
    if not await asyncio.to_thread(member.is_primary):
        return False
    try:
        async with await connect(member.url()) as conn:
            return not await value(conn, "SELECT pg_is_in_recovery()")
    except psycopg.OperationalError:
        return False
