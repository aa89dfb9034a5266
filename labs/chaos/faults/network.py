"""The line between the workers and the database: cut, refused, half open, delayed, throttled."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from labs.chaos.fault import Fault

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

    from labs.chaos.fault import Site
    from labs.chaos.proxy import Proxy


def _strike(
    turn: Callable[[Proxy, random.Random], None], shortest: float, longest: float
) -> Callable[[Site, random.Random], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def strike(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
        # The same line is healed later, whichever server is primary then.
        proxy = site.ground.primary.proxy
        turn(proxy, dice)
        try:
            await asyncio.sleep(dice.uniform(shortest, longest))
            yield
        finally:
            proxy.pass_()

    return strike


@asynccontextmanager
async def cut(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Reset every connection, several times over."""
    for _ in range(dice.randint(1, 5)):
        site.ground.primary.proxy.cut()
        await asyncio.sleep(dice.uniform(0.02, 0.3))
    yield


FAULTS = (
    Fault("network cut", cut),
    Fault("network refused", _strike(lambda proxy, _: proxy.refuse(), 0.3, 5)),
    Fault("network half open", _strike(lambda proxy, _: proxy.half_open(), 0.5, 6)),
    Fault("network delayed", _strike(lambda proxy, dice: proxy.delay(dice.uniform(0.02, 0.4)), 1, 5)),
    Fault("network throttled", _strike(lambda proxy, dice: proxy.throttle(dice.uniform(8_000, 200_000)), 1, 5)),
)
