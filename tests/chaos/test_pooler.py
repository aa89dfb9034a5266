from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chaos.faults.failover import FAULTS as FAILOVERS
from chaos.faults.pooler import FAULTS
from tests.chaos.stage import stage, strike

if TYPE_CHECKING:
    from chaos.fault import Fault


@pytest.mark.prove
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_the_pooler(fault: Fault) -> None:
    async with stage() as site:
        await strike(site, fault)


@pytest.mark.prove
async def test_after_a_failover_the_pooler_leads_to_the_new_primary() -> None:
    """Who is left then lives behind it."""
    async with stage(standby=True, replicas=2) as site:
        await strike(site, FAILOVERS[0])
        site.fleet.replicas[0].kill()
        await strike(site, FAULTS[0])
