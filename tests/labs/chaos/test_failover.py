from __future__ import annotations

import random

import pytest

from labs.chaos.faults.failover import FAULTS, failover, standby_ready
from tests.labs.chaos.stage import rows, stage, strike


@pytest.mark.prove
async def test_there_and_back() -> None:
    """The standby is promoted, the old primary becomes its standby, and is promoted in its turn."""
    async with stage(standby=True) as site:
        one, two = site.ground.primary, site.ground.standby
        await strike(site, FAULTS[0])
        assert (site.ground.primary, site.ground.standby) == (two, one)
        assert not one.running, "two primaries would both take writes"
        await strike(site, FAULTS[0])
        assert (site.ground.primary, site.ground.standby) == (one, two)
        assert await rows(site, "SELECT pg_is_in_recovery()") == [(False,)]
        assert site.ground.failovers == 2


@pytest.mark.prove
async def test_a_standby_that_every_commit_waits_for_is_lost() -> None:
    async with stage(standby=True) as site:
        await strike(site, FAULTS[1])
        assert await site.ground.in_sync()


@pytest.mark.prove
async def test_a_standby_that_is_not_in_sync_is_not_promoted() -> None:
    async with stage(standby=True) as site:
        await site.ground.wait_for_standby(None)
        assert not await standby_ready(site)
        primary = site.ground.primary
        async with failover(site, random.Random(1)):
            assert primary.running
        assert site.ground.primary is primary
