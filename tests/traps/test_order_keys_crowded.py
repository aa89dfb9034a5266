"""Order keys under fire: six producers with rollbacks and late commits, four workers that retry, release and die."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.mutation import open_trap
from tests.kit.workers import statuses
from tests.traps.crowd import Crowd

if TYPE_CHECKING:
    from tests.kit.workers import Connect


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("randomly_seed", 1)) % 1_000_000


@pytest.mark.parametrize("seconds", [1, pytest.param(60, marks=pytest.mark.prove)])
def test_nothing_is_lost_and_nothing_overtakes(database: str, connect: Connect, seconds: float, seed: int) -> None:
    crowd = Crowd(database, seconds, seed)
    crowd.run()
    assert crowd.errors == []
    assert statuses(connect()) == dict.fromkeys(crowd.committed, "completed")
    assert crowd.violations() == []
    assert len(crowd.committed) > 30 * seconds


TRAPS = {
    # Nobody makes sure that a lower one is not waiting.
    "overtaking": (
        "take_order_heads",
        "e.order_key = j.order_key AND (e.order_seq, e.id) < (j.order_seq, j.id))",
        "false)",
    ),
    # Nobody promotes.
    "no promotion": ("settle_batch", "IF successors <> '{}' THEN", "IF false THEN"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_with_the_trap_open(database: str, connect: Connect, seed: int, trap: str) -> None:
    function, old, new = TRAPS[trap]
    open_trap(connect(), function, (old, new))
    crowd = Crowd(database, seconds=2, seed=seed, patience=2)
    crowd.run()
    stuck = set(statuses(connect()).values()) != {"completed"}
    assert crowd.errors or crowd.violations() or stuck
