from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from labs.chaos.faults.network import FAULTS
from tests.labs.chaos.stage import stage, strike

if TYPE_CHECKING:
    from labs.chaos.fault import Fault


@pytest.mark.prove
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_the_line_to_the_database(fault: Fault) -> None:
    async with stage() as site:
        await strike(site, fault)
