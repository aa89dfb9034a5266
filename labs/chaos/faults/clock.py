"""A worker's wall clock is off by hours. Its monotonic clock is true, as everywhere."""

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


def _strike(sign: int) -> Callable[[Site, random.Random], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def strike(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
        right = [replica for replica in site.fleet.replicas if not replica.environment.get("FAKETIME")]
        replica = dice.choice(right or site.fleet.replicas)
        off = sign * dice.uniform(2, 60) * HOUR
        wrong = await asyncio.to_thread(faketime.environment, off)
        await replica.restart(**wrong)
        try:
            await asyncio.sleep(dice.uniform(1, 4))
            yield
        finally:
            await replica.terminate()
            await replica.restart(**dict.fromkeys(wrong, ""))

    return strike


FAULTS = (Fault("clock hours ahead", _strike(+1)), Fault("clock hours behind", _strike(-1)))
