"""The ways in which a cluster loses its leader."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.patroni import Member

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from labs.chaos.ha.cluster import Cluster


LAG = 1.0


@dataclass(frozen=True, slots=True)
class Loss:
    """One of them."""

    name: str
    """Plain words; they stand in the report."""
    strike: Callable[[Cluster], Coroutine[Any, Any, None]]
    """Let it happen; it may return before there is a new leader."""
    heal: Callable[[Member], None] = lambda _: None
    """Let the old leader come back, as a standby. It may do that by itself."""


async def switch_over(cluster: Cluster) -> None:
    """Give the leadership to the standby in sync, as before maintenance of the leader's machine."""
    leader, candidate = cluster.leader, await asyncio.to_thread(cluster.standby)
    await asyncio.to_thread(leader.switch_over, leader.name, candidate.name)


async def kill_server(cluster: Cluster) -> None:
    """Kill PostgreSQL. Its Patroni sees that at its next look, and gives the leadership away."""
    await asyncio.to_thread(cluster.leader.kill_server)


async def kill_member(cluster: Cluster) -> None:
    """Kill PostgreSQL and Patroni, as the loss of their machine would. The others wait until the lease is over."""
    await asyncio.to_thread(cluster.leader.kill)


async def freeze(cluster: Cluster) -> None:
    """Let PostgreSQL and Patroni hang. No connection is closed, and none is answered."""
    await asyncio.to_thread(cluster.leader.freeze)


async def kill_lagging(cluster: Cluster) -> None:
    """Kill both when nothing has been sent to the standbys for a while, as over a slow line."""
    for pid in await cluster.senders():
        os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(LAG)
    await asyncio.to_thread(cluster.leader.kill)


SWITCHOVER = Loss("switchover", switch_over)
SERVER = Loss("PostgreSQL killed", kill_server)
MEMBER = Loss("PostgreSQL and Patroni killed", kill_member, Member.start)
FROZEN = Loss("PostgreSQL and Patroni frozen", freeze, Member.reset)
LAGGING = Loss(f"both killed, standbys {LAG:g} s behind", kill_lagging, Member.start)
LOSSES = (SWITCHOVER, SERVER, MEMBER, FROZEN, LAGGING)
