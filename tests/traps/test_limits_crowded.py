"""Limits under fire: six workers that retry, release, lose and are killed, cancels, and limits that change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.workers import statuses
from tests.traps.limited_crowd import LimitedCrowd

if TYPE_CHECKING:
    from tests.kit.workers import Connect


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("randomly_seed", 1)) % 1_000_000


@pytest.mark.parametrize("seconds", [2, pytest.param(120, marks=pytest.mark.prove)])
def test_no_limit_is_passed_and_nothing_is_stranded(database: str, connect: Connect, seconds: float, seed: int) -> None:
    crowd = LimitedCrowd(database, seconds, seed)
    crowd.run()
    assert crowd.errors == []
    assert crowd.violations == []
    assert crowd.mended == 0
    assert set(statuses(connect()).values()) <= {"completed", "failed", "cancelled"}
    assert crowd.ended > 30 * seconds
    assert crowd.samples > 30 * seconds
