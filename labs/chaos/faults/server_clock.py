"""The server's clock leaps, and is corrected later. Rows written meanwhile have times that are still to come."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from labs.chaos.fault import Fault
from tools import faketime

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

    from labs.chaos.fault import Site

HOUR = 3600.0
DAY = 24 * HOUR


def _strike(seconds: float) -> Callable[[Site, random.Random], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def strike(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
        server = site.ground.primary
        lost = dice.choice(site.fleet.replicas)
        wrong = await asyncio.to_thread(faketime.environment, seconds)
        await server.shut("fast")
        server.environment = wrong
        try:
            await server.open()
            await asyncio.sleep(dice.uniform(1, 5))
            # Its leases are of the wrong clock, and it does not renew them.
            lost.kill()
            yield
        finally:
            await server.shut("fast")
            server.environment = {}
            await server.open()
            site.fleet.bring_back(lost)

    return strike


# Longer than most of the history is kept.
WEEKS_AHEAD = Fault("server clock weeks ahead", _strike(40 * DAY), alone=True)
FAULTS = (WEEKS_AHEAD, Fault("server clock hours behind", _strike(-3 * HOUR), alone=True))
