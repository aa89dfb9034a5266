from __future__ import annotations

import math
from datetime import timedelta

import pytest

from holdfast import Lease


def test_named_leases() -> None:
    named = [Lease(), Lease.standard, Lease.heavy, Lease.external]
    assert [lease.duration for lease in named] == [timedelta(seconds=s) for s in (60, 30, 60, 120)]
    assert Lease(seconds=0.25).milliseconds == 250


@pytest.mark.parametrize("seconds", [0, -1, 0.05, 86_401, math.inf, math.nan])
def test_a_lease_is_bounded(seconds: float) -> None:
    with pytest.raises(ValueError, match="lease: expected seconds or a timedelta, from 100 ms to 1 day, "):
        Lease(seconds=seconds)
