from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from labs.chaos.faults.upgrade import FAULTS
from tests.labs.chaos.stage import rows, stage, strike

if TYPE_CHECKING:
    from labs.chaos.fault import Fault


@pytest.mark.prove
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_two_versions_side_by_side(fault: Fault) -> None:
    async with stage(replicas=3) as site:
        await strike(site, fault)
        await strike(site, fault, seed=2)
        assert {replica.environment["CHAOS_VERSION"] for replica in site.fleet.replicas} == {"2"}
        assert await rows(site, "SELECT count(*) FROM holdfast.migration WHERE name LIKE '%%_spare'") == [(2,)]
