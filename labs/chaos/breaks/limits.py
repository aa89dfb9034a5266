"""Plays with limits and tenants."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from labs.chaos.breaks import kinds
from labs.chaos.breaks.scene import Play
from labs.chaos.producer import Promised

if TYPE_CHECKING:
    from labs.chaos.breaks.scene import Scene

# More than one claim takes jobs.
TENANTS = 280
EACH = 10


async def one_by_one(scene: Scene) -> None:
    """Let several replicas be after jobs that run alone, and that come one by one."""
    for _ in range(40):
        await scene.promise(Promised(kinds.single.new(0.05), "limited"))


async def holder_killed(scene: Scene, *, attempts: int) -> None:
    """Kill the worker that holds the only place. Its job may be tried again, apart, while others hold the place."""
    job = kinds.single.new(1.0).options(max_attempts=attempts)
    (first,) = await scene.promise(Promised(job, "limited", expected="failed" if attempts == 1 else "completed"))
    holder = await scene.holder(first)
    await scene.promise(*[Promised(kinds.single.new(1.5), "limited") for _ in range(3)])
    await scene.until("SELECT EXISTS (SELECT FROM holdfast.job WHERE status = 'blocked')")
    holder.kill()


async def slow_starts(scene: Scene) -> None:
    """Let several replicas be after jobs of a rate."""
    await scene.promise(*[Promised(kinds.slow.new(), "limited") for _ in range(60)])


async def many_tenants(scene: Scene) -> None:
    """Let many tenants wait, and one more, the last by its name, have few jobs."""
    accounts = [f"t{number:03}" for number in range(TENANTS) for _ in range(EACH)] + ["z"] * 3
    await scene.promise(*[Promised(kinds.turn.new(account), "tenant", key=account) for account in accounts])


ONE_BY_ONE = Play("replicas crowd around a limit of one", one_by_one, replicas=3, well=True, patience=12)
HOLDER_LOST = Play(
    "the holder of the only place is killed for good", partial(holder_killed, attempts=1), replicas=3, patience=16
)
HOLDER_KILLED = Play(
    "the holder of the only place is killed", partial(holder_killed, attempts=9), replicas=3, patience=16
)
SLOW_STARTS = Play("replicas crowd around a rate", slow_starts, well=True, patience=14)
MANY_TENANTS = Play("many tenants wait", many_tenants, replicas=1, well=True, patience=40)
