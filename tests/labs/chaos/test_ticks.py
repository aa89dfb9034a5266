from __future__ import annotations

import asyncio
import random

import pytest

from labs.chaos.ticks import PREFIX, Ticks
from tests.kit.waiting import until
from tests.labs.chaos.stage import rows, stage

pytestmark = pytest.mark.nightly


async def test_ticks_take_part_without_violations() -> None:
    async with stage(replicas=1) as site, Ticks(site.fleet, random.Random(3)) as ticks:
        site.load.rate = 100
        await until(lambda: ticks.count >= 2, seconds=60)

        async def done() -> int:
            counted = await rows(
                site,
                "SELECT count(*) FROM holdfast.job_history h JOIN holdfast.worker w ON w.id = h.worker_id"
                " WHERE starts_with(w.name, %s)",
                PREFIX,
            )
            return int(counted[0][0])

        # A replica that keeps up leaves a tick nothing to do: while it is frozen, ticks do the work.
        site.fleet.replicas[0].stop()
        async with asyncio.timeout(60):
            while not await done():  # noqa: ASYNC110 - another process does it
                await asyncio.sleep(0.1)
        site.fleet.replicas[0].cont()
