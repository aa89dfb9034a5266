"""The primary is lost for good, and its synchronous standby takes over; or the standby itself is lost."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from labs.chaos.fault import Fault

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator

    from labs.chaos.fault import Site


async def standby_ready(site: Site) -> bool:
    """Make the standby anew if there was a failover since; False where the lab has none that is in sync.

    Only one that is in sync may be promoted: of any other, what was acknowledged could be lost.
    """
    ground = site.ground
    if ground.standby is None:
        site.say("left out: there is no standby")
        return False
    if not ground.standby.running:
        await ground.rebuild()
    return await ground.in_sync()


@asynccontextmanager
async def failover(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Kill the primary; promote the standby. The old one becomes the standby of the new when next that is needed."""
    if not await standby_ready(site):
        yield
        return
    await asyncio.to_thread(site.ground.primary.crash)
    try:
        await asyncio.sleep(dice.uniform(0, 1.5))
        yield
    finally:
        await site.ground.fail_over()


@asynccontextmanager
async def standby_lost(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Kill the standby that every commit waits for: nothing commits until it is back."""
    standby = site.ground.standby
    if standby is None or not await standby_ready(site):
        yield
        return
    await asyncio.to_thread(standby.crash)
    try:
        await asyncio.sleep(dice.uniform(0.3, 4))
        yield
    finally:
        await standby.open()


FAULTS = (Fault("failover to the standby", failover, alone=True), Fault("standby lost", standby_lost, alone=True))
