"""Faults of worker processes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from chaos.fault import Fault, Site

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator

    from chaos.fleet import Replica


def some_replica(site: Site, dice: random.Random) -> Replica:
    """Choose one that works; when none does, any."""
    return dice.choice(site.fleet.working or site.fleet.replicas)


@asynccontextmanager
async def killed(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Kill a process. Recovery is that of the others: they take over what it held, whenever it comes back."""
    replica = some_replica(site, dice)
    replica.kill()
    await asyncio.sleep(dice.uniform(0.2, 0.5))
    yield
    site.fleet.bring_back(replica)


@asynccontextmanager
async def frozen(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Stop a process for longer than its lease: when it goes on, it believes that it still holds its jobs."""
    replica = some_replica(site, dice)
    replica.stop()
    await asyncio.sleep(site.lease + dice.uniform(0.2, 1.5))
    yield
    replica.cont()


@asynccontextmanager
async def frozen_briefly(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Stop a process for about as long as its lease: it may go on in the moment in which that is taken away."""
    replica = some_replica(site, dice)
    replica.stop()
    await asyncio.sleep(site.lease * dice.uniform(0.6, 1.2))
    yield
    replica.cont()


@asynccontextmanager
async def deployed(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Stop a worker gently, as a deployment does."""
    replica = some_replica(site, dice)
    await replica.terminate()
    await asyncio.sleep(dice.uniform(0.2, 0.5))
    yield
    site.fleet.bring_back(replica)


FAULTS = (
    Fault("worker killed", killed),
    Fault("worker frozen past its lease", frozen),
    Fault("worker frozen for about its lease", frozen_briefly),
    Fault("worker stopped gently", deployed),
)
