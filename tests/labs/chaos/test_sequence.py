from __future__ import annotations

import random
from collections import Counter
from contextlib import nullcontext

import pytest

from labs.chaos.fault import Fault
from labs.chaos.faults import FAULTS
from labs.chaos.sequence import MOST_AT_ONCE, sequence

SOME = [Fault(f"f{n}", lambda _site, _dice: nullcontext(), alone=n % 3 == 0) for n in range(10)]


@pytest.mark.parametrize("count", [1, 7, 12, 300])
def test_it_has_so_many_faults_in_groups_that_may_overlap(count: int) -> None:
    groups = sequence(SOME, count, random.Random(1), alone=0.4)
    assert sum(map(len, groups)) == count
    for group in groups:
        assert 1 <= len(group) <= MOST_AT_ONCE
        assert len({strike.fault.name for strike in group}) == len(group)
        assert len(group) == 1 or not any(strike.fault.alone for strike in group)


def test_every_fault_strikes_alone_and_in_company() -> None:
    groups = sequence(SOME, 300, random.Random(1), alone=0.4)
    alone = Counter(group[0].fault.name for group in groups if len(group) == 1)
    assert set(alone) == {fault.name for fault in SOME}
    company = {strike.fault.name for group in groups if len(group) > 1 for strike in group}
    assert company == {fault.name for fault in SOME if not fault.alone}
    times = Counter(strike.fault.name for group in groups for strike in group)
    assert max(times.values()) - min(times.values()) <= 1


def test_the_seed_decides() -> None:
    one, same, other = (sequence(SOME, 50, random.Random(seed), alone=0.4) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_names_are_distinguished() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 25
