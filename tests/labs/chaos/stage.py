"""A small site for one fault: servers, two replicas, a trickle of jobs; and whether what was promised was kept."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.chaos.fault import Site
from labs.chaos.fleet import Fleet
from labs.chaos.ground import Ground
from labs.chaos.pace import Pace
from labs.chaos.producer import Producer
from labs.chaos.publisher import Publisher
from labs.chaos.recovery import recover

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from labs.chaos.fault import Fault

RATE = 200
MANY = 10**9

# How every promise ended that was not kept.
BROKEN = """
    SELECT p.job, p.workload, p.expected, p.key, coalesce(h.status::text, f.status::text, 'live') AS ended,
        f.last_error_code, f.last_error, j.attempt
    FROM chaos.promise p LEFT JOIN holdfast.job_history h ON h.id = p.job
        LEFT JOIN holdfast.job_failed f ON f.id = p.job LEFT JOIN holdfast.job j ON j.id = p.job
    WHERE coalesce(h.status::text, f.status::text, 'live') <> ALL (
            CASE p.expected WHEN 'either' THEN ARRAY['completed', 'failed'] ELSE ARRAY[p.expected] END)
        OR (p.workload = 'trouble' AND p.key IS DISTINCT FROM f.last_error_code AND f.id IS NOT NULL)
"""


@asynccontextmanager
async def stage(
    *, standby: bool = False, replicas: int = 2, pace: Pace | None = None, rate: float = RATE
) -> AsyncGenerator[Site, None]:
    """Make the site; at the end, check that every promise is kept and that no process died by itself."""
    pace = pace or Pace()
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as name:
        folder = Path(name)
        async with Ground(standby=standby) as ground, Fleet(ground, pace, folder, replicas=replicas) as fleet:
            load = Producer(ground, MANY, random.Random(1), rate=rate)
            async with load:
                yield Site(ground, fleet, load, Publisher(load, random.Random(2)), pace, folder)
            await kept(ground)
            assert [death for death in fleet.deaths if not death.expected] == []


async def strike(site: Site, fault: Fault, seed: int = 1) -> None:
    """Let it happen once, and see that the site recovers in time."""
    async with fault.strike(site, random.Random(seed)):
        pass
    await recovered(site, fault)


async def recovered(site: Site, fault: Fault) -> None:
    recovery = await recover(site, (fault.name,), time.monotonic())
    assert not recovery.missing, f"{fault.name}: {recovery.missing}, after {recovery.seconds:.1f} s"


async def kept(ground: Ground, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    async with await ground.admin() as conn:
        while True:
            broken = await (await conn.execute(BROKEN)).fetchall()
            if not broken or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.1)
    assert broken == [], broken


async def rows(site: Site, query: str, *params: object) -> list[tuple[Any, ...]]:
    async with await site.ground.admin() as conn:
        return await (await conn.execute(query.encode(), params)).fetchall()
