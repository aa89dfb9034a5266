"""PgBouncer, which one replica lives behind, is killed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from labs.chaos.fault import Fault

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator

    from labs.chaos.fault import Site


@asynccontextmanager
async def killed(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    site.ground.pooler.kill()
    try:
        await asyncio.sleep(dice.uniform(0.2, 4))
        yield
    finally:
        await asyncio.to_thread(site.ground.pooler.restart)


@asynccontextmanager
async def reloaded(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Send everybody anew to where they are: every connection to the server is replaced when it is next free."""
    for _ in range(dice.randint(1, 3)):
        site.ground.pooler.point_at(site.ground.primary.proxy)
        await asyncio.sleep(dice.uniform(0.05, 0.3))
    yield


FAULTS = (Fault("pooler killed", killed), Fault("pooler reloaded", reloaded))
