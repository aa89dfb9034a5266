"""Handlers that misbehave and payloads that should not be. Each has a promised outcome, which is checked at the end."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psycopg

from holdfast._engine.link import LOST
from labs.chaos.fault import Fault
from labs.chaos.trouble import troubles

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from labs.chaos.fault import Site
    from labs.chaos.trouble import Trouble

PATIENCE = 6.0
# A handler that kills its worker is waited for, so that every death is attributed to this fault: the jobs that were
# lost with it run apart, one after the other, and the deadly one may be the last.
LONG_PATIENCE = 90.0
AT_ONCE = 4


def _strike(family: str) -> Callable[[Site, random.Random], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def strike(site: Site, dice: random.Random) -> AsyncGenerator[None, None]:
        every = [trouble for trouble in troubles(site.lease) if trouble.name.startswith(family)]
        chosen = dice.sample(every, min(len(every), AT_ONCE))
        deadly = [code for trouble in chosen for code in trouble.deadly]
        with site.fleet.expecting(*deadly):
            ids = [job for trouble in chosen for job in await promise(site, trouble)]
            if not await ended(site, ids, LONG_PATIENCE if deadly else PATIENCE) and deadly:
                site.say(f"not ended: one of the jobs {ids}. A worker that it kills now seems to have died by itself")
        yield

    return strike


async def promise(site: Site, trouble: Trouble, *, seconds: float = LONG_PATIENCE) -> list[int]:
    """Enqueue it, with its promise, in one transaction; again when the answer is lost: then there may be several."""
    deadline = time.monotonic() + seconds
    jobs = []
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(site.ground.admin_url(), connect_timeout=5) as conn:
                jobs.append(await trouble.put(conn))
                batch = site.load.batch()
                # Of trouble the key is the error code with which it must have failed.
                await conn.execute(
                    "INSERT INTO chaos.promise (job, batch, n, workload, key, expected) VALUES (%s, %s, 0, %s, %s, %s)",
                    [jobs[-1], batch, "trouble", trouble.code, trouble.end],
                )
                await conn.commit()
        except LOST:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
        else:
            site.load.tally.acknowledged[batch] = 1
            site.load.tally.jobs += 1
            return jobs


async def ended(site: Site, jobs: Sequence[int], seconds: float) -> bool:
    """Wait until all of them are over, but no longer than this."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            async with await site.ground.admin() as conn:
                while time.monotonic() < deadline:
                    cursor = await conn.execute("SELECT FROM holdfast.job WHERE id = ANY (%s) LIMIT 1", [list(jobs)])
                    if cursor.rowcount == 0:
                        return True
                    await asyncio.sleep(0.05)
        except LOST:
            await asyncio.sleep(0.1)
    return False


FAULTS = tuple(
    Fault(family, _strike(family))
    for family in (
        "handler exits",
        "handler leaks memory",
        "handler raises",
        "handler blocks the event loop",
        "handler returns",
        "payload of 50 MB",
        "payload with NUL or lone surrogates",
        "payload that no longer validates",
    )
)
