from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from labs.chaos.faults.failover import FAULTS as FAILOVERS
from labs.chaos.faults.pooler import FAULTS
from labs.chaos.pooler import Pooler
from tests.kit.waiting import until
from tests.labs.chaos.stage import stage, strike

if TYPE_CHECKING:
    from labs.chaos.fault import Fault
    from tools.postgres import Server

pytestmark = pytest.mark.nightly


async def test_a_pooler_that_falls_is_started_again(server: Server) -> None:
    """A service manager would do so; PgBouncer 1.18 falls over some cancellations in a half-open network."""
    with Pooler(server, "postgres") as pooler:
        keeping = asyncio.create_task(pooler.keep())
        os.kill(pooler.pid, signal.SIGSEGV)
        await until(lambda: len(pooler.falls) == 1)
        assert "does not answer" not in await pooler.explain()

        pooler.kill()
        pooler.look()
        assert not pooler.runs(), "whoever killed it wants it to stay away"
        await asyncio.to_thread(pooler.restart)
        assert pooler.runs()
        assert len(pooler.falls) == 1
        keeping.cancel()


@pytest.mark.prove
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_the_pooler(fault: Fault) -> None:
    async with stage() as site:
        await strike(site, fault)


@pytest.mark.prove
async def test_after_a_failover_the_pooler_leads_to_the_new_primary() -> None:
    """The remaining worker is behind it."""
    async with stage(standby=True, replicas=2) as site:
        await strike(site, FAILOVERS[0])
        site.fleet.replicas[0].kill()
        await strike(site, FAULTS[0])
