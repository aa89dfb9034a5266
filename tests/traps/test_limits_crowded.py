"""Limits under fire: six workers that retry, release, lose and are killed, cancels, and limits that change."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.kit.limits import limited, set_rate
from tests.kit.workers import Worker, enqueue, statuses
from tests.traps.limited_crowd import LimitedCrowd

if TYPE_CHECKING:
    from tests.kit.workers import Connect


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("randomly_seed", 1)) % 1_000_000


@pytest.mark.parametrize("seconds", [1, pytest.param(120, marks=pytest.mark.prove)])
def test_no_limit_is_passed_and_nothing_is_stranded(database: str, connect: Connect, seconds: float, seed: int) -> None:
    crowd = LimitedCrowd(database, seconds, seed)
    crowd.run()
    assert crowd.errors == []
    assert crowd.violations == []
    assert crowd.mended == 0
    assert set(statuses(connect()).values()) <= {"completed", "failed", "cancelled"}
    assert crowd.ended > 30 * seconds
    assert crowd.samples > 30 * seconds


@pytest.mark.parametrize("seconds", [1, pytest.param(60, marks=pytest.mark.prove)])
def test_in_no_time_more_start_than_the_rate_allows(connect: Connect, seconds: float) -> None:
    """Also when six sessions claim at once, and each began before the others had committed."""
    rate, burst = 200, 5
    set_rate(connect(), "slow", rate, 1000, burst)
    enqueue(connect(), *[limited("slow", kind="km"[n % 2]) for n in range(int(rate * seconds) + 500)])
    end = time.monotonic() + seconds

    def claims(worker: Worker) -> list[tuple[float, float, int]]:
        taken = []
        while (begun := time.monotonic()) < end:
            jobs = worker.claim(7)
            if jobs:
                taken.append((begun, time.monotonic(), len(jobs)))
                worker.end(jobs)
        return taken

    workers = [Worker(connect(), "k", "m") for _ in range(6)]
    with ThreadPoolExecutor(len(workers)) as pool:
        taken = sorted(each for found in pool.map(claims, workers) for each in found)
    assert all(first[0] <= second[0] for first, second in pairwise(taken))
    for place, (begun, _, _) in enumerate(taken):
        # Of each span of claims: those that began and ended within it.
        for last in (place, min(place + 20, len(taken) - 1), len(taken) - 1):
            until = max(returned for _, returned, _ in taken[place : last + 1])
            started = sum(count for _, _, count in taken[place : last + 1])
            assert started <= rate * (until - begun) + burst
    assert sum(count for _, _, count in taken) > 0.2 * rate * seconds
