from __future__ import annotations

import pytest

from labs.chaos.faults.notification import FAULTS
from tests.labs.chaos.stage import rows, stage, strike

pytestmark = pytest.mark.nightly


async def test_a_forged_notification_changes_nothing() -> None:
    [fault] = FAULTS
    async with stage() as site:
        await strike(site, fault)
        assert await rows(site, "SELECT * FROM holdfast.attempt WHERE outcome NOT IN ('retry', 'completed')") == []
