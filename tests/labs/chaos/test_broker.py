from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from labs.chaos.faults.broker import FAULTS
from tests.labs.chaos.stage import rows, stage, strike

if TYPE_CHECKING:
    from labs.chaos.fault import Fault


@pytest.mark.prove
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_the_broker(fault: Fault) -> None:
    async with stage() as site:
        voice = site.publisher.voice()
        for _ in range(20):
            await voice.speak(10)
        await strike(site, fault)
        await voice.close()
        output = {event for (event,) in await rows(site, "SELECT event FROM chaos.published")}
        async with asyncio.timeout(20):
            while await site.ground.broker.count() < len(output):  # noqa: ASYNC110 - a broker is asked
                await asyncio.sleep(0.05)
        assert sorted(arrival.event for arrival in await site.ground.broker.arrivals()) == sorted(output)
