from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from labs.chaos.faults.identity import FAULTS
from tests.kit.waiting import until
from tests.labs.chaos.stage import rows, stage, strike

if TYPE_CHECKING:
    from labs.chaos.fault import Fault

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(
    "fault", [*FAULTS[:-1], pytest.param(FAULTS[-1], marks=pytest.mark.prove)], ids=lambda fault: fault.name
)
async def test_a_worker_without_its_row_registers_anew(fault: Fault) -> None:
    async with stage() as site:
        await strike(site, fault)
        await until(lambda: any("registering anew" in replica.log() for replica in site.fleet.replicas))
        (gone,) = await rows(site, "SELECT name, id FROM chaos.gone")
        assert await rows(site, "SELECT id > %s FROM holdfast.worker WHERE name = %s", gone[1], gone[0]) == [(True,)]
        assert await rows(site, "SELECT id FROM holdfast.worker WHERE name = 'another'") == []
