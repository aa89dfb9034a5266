from __future__ import annotations

import pytest

from labs.chaos.faults.trouble import FAULTS, ended, promise
from labs.chaos.pace import Pace
from labs.chaos.trouble import troubles
from tests.labs.chaos.stage import stage

EVERY = list(troubles(Pace().lease))


def test_every_trouble_belongs_to_a_fault_and_every_fault_has_one() -> None:
    families = [fault.name for fault in FAULTS]
    assert [trouble.name for trouble in EVERY if not any(trouble.name.startswith(family) for family in families)] == []
    assert [family for family in families if not any(trouble.name.startswith(family) for trouble in EVERY)] == []


@pytest.mark.prove
@pytest.mark.parametrize("family", [fault.name for fault in FAULTS])
async def test_every_trouble_ends_as_it_must(family: str) -> None:
    async with stage(rate=50) as site:
        troubled = [trouble for trouble in EVERY if trouble.name.startswith(family)]
        with site.fleet.expecting(*[code for trouble in troubled for code in trouble.deadly]):
            ids = [job for trouble in troubled for job in await promise(site, trouble)]
            assert await ended(site, ids, 60)
