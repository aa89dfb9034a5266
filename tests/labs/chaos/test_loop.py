from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from labs.chaos.faults.loop import FAULTS, ROLES
from tests.kit.waiting import until
from tests.labs.chaos.stage import stage, strike

if TYPE_CHECKING:
    from labs.chaos.fault import Fault

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(
    "fault", [FAULTS[0], *(pytest.param(fault, marks=pytest.mark.prove) for fault in FAULTS[1:])], ids=lambda f: f.name
)
async def test_a_loop_that_ends_is_started_again(fault: Fault) -> None:
    async with stage() as site:
        await strike(site, fault)
        assert any("is started again" in replica.log() for replica in site.fleet.replicas)


@pytest.mark.prove
async def test_every_loop_of_a_replica_can_be_struck() -> None:
    async with stage(replicas=1) as site:
        [replica] = site.fleet.replicas
        for role in ROLES:
            before = replica.log().count("a loop of the worker ended")
            replica.strike(role)
            if role != "hook":  # the application of the lab has none
                await until(lambda: replica.log().count("a loop of the worker ended") > before)  # noqa: B023
