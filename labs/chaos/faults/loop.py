"""Faults inside a worker: one of its loops ends."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, get_args

from holdfast._engine.keeper import Role
from labs.chaos.fault import Fault, Site
from labs.chaos.faults.process import some_replica

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator

ROLES: tuple[Role, ...] = tuple(role for role in get_args(Role) if role != "start")
"""All loops that a worker which has started may have."""


@asynccontextmanager
async def loop_ended(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """End loops of a replica, one after the other, as an unforeseen error would. Its keeper starts them again."""
    replica = some_replica(site, dice)
    for role in dice.sample(ROLES, 3):
        replica.strike(role)
        await asyncio.sleep(dice.uniform(0.1, 0.4))
    yield


@asynccontextmanager
async def finishers_ended(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """End what writes the endings, in every replica at once."""
    for replica in site.fleet.working:
        replica.strike("finisher")
    await asyncio.sleep(dice.uniform(0.2, 0.5))
    yield


FAULTS = (
    Fault("loops of a worker ended", loop_ended),
    Fault("the finisher of every worker ended", finishers_ended),
)
