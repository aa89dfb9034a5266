"""The broker, to which the relay publishes."""

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
    """Kill it; it comes back on the same store."""
    site.ground.broker.kill()
    try:
        await asyncio.sleep(dice.uniform(0.2, 2))
        yield
    finally:
        site.ground.broker.restart()


@asynccontextmanager
async def frozen(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Let it hang, for longer than a confirmation is waited for or not quite; then it does what it was asked to."""
    site.ground.broker.freeze()
    try:
        await asyncio.sleep(dice.uniform(0.5, 4))
        yield
    finally:
        site.ground.broker.thaw()


FAULTS = (Fault("broker killed", killed), Fault("broker frozen", frozen))
