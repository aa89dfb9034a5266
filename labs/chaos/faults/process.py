"""Faults of worker processes."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holdfast._engine.link import LOST
from labs.chaos.fault import Fault, Site
from labs.chaos.ground import value

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator

    from labs.chaos.fleet import Replica

# So long is a worker looked for that holds a job, as one does for so long: one that holds none has nothing to lose.
LOOK_SECONDS = 3.0

_HOLDS = """
    SELECT EXISTS (SELECT FROM holdfast.job JOIN holdfast.worker ON worker.id = job.locked_by WHERE worker.name = %s)
"""


def some_replica(site: Site, dice: random.Random) -> Replica:
    """Choose one that works; when none does, any."""
    return dice.choice(site.fleet.working or site.fleet.replicas)


async def stopped_at_work(site: Site, dice: random.Random) -> Replica:
    """Stop a replica that holds a job, which it can then not end; when none is found, any."""
    deadline = time.monotonic() + LOOK_SECONDS
    site.load.occupy(len(site.fleet.replicas), LOOK_SECONDS)
    while True:
        replica = some_replica(site, dice)
        is_stopped_already = replica.stopped
        replica.stop()
        if is_stopped_already or time.monotonic() > deadline or await _holds(site, replica):
            return replica
        replica.cont()
        await asyncio.sleep(0.02)


async def _holds(site: Site, replica: Replica) -> bool:
    """Whether it holds a job; also true while the server does not answer and nothing can be said."""
    try:
        async with asyncio.timeout(LOOK_SECONDS), await site.ground.admin() as conn:
            return bool(await value(conn, _HOLDS, replica.name))
    except (*LOST, TimeoutError):
        return True


@asynccontextmanager
async def killed(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Kill a process. Recovery is that of the others: they take over what it held, whenever it comes back."""
    replica = await stopped_at_work(site, dice)
    replica.kill()
    await asyncio.sleep(dice.uniform(0.2, 0.5))
    yield
    site.fleet.bring_back(replica)


@asynccontextmanager
async def frozen(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
    """Stop a process for longer than its lease: when it goes on, it believes that it still holds its jobs."""
    replica = await stopped_at_work(site, dice)
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
