"""Fairness in numbers: one tenant with a large backlog, 99 with a job a second each, and eight sessions that claim."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.kit.limits import set_limits
from tests.kit.tenants import of_tenant, set_weights, tenants
from tests.kit.workers import Worker, enqueue, fill

if TYPE_CHECKING:
    from tests.kit.workers import Connect

SMALL = 99
SECONDS = 8
CLAIMED = 120
"""By all workers, in each second."""


def jain(shares: list[float]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


@pytest.mark.parametrize("limits", [(), ("wide",)], ids=["free", "limited"])
def test_no_tenant_waits_for_more_than_three_rounds(connect: Connect, limits: tuple[str, ...]) -> None:
    """Time is counted in jobs claimed: a round is one job of each tenant."""
    chance = random.Random(7)
    conn = connect()
    set_limits(conn, wide=40)
    fill(conn, 3000, tenant="'big'", **({"limits": "'{wide}'"} if limits else {}))
    workers = [Worker(connect()) for _ in range(4)]
    since: dict[int, int] = {}
    waits: list[int] = []
    clock = 0
    for _ in range(SECONDS):
        arrivals = sorted((chance.randrange(CLAIMED), f"t{n}") for n in range(SMALL))
        for step in range(0, CLAIMED, 10):
            due = [tenant for at, tenant in arrivals if step <= at < step + 10]
            made = enqueue(conn, *[of_tenant(tenant, *limits) for tenant in due]) if due else []
            since.update(dict.fromkeys(made, clock))
            worker = chance.choice(workers)
            jobs = worker.claim(10)
            clock += 10
            waits += [clock - since.pop(job.id) for job in jobs if job.id in since]
            worker.end(jobs)
    waits += [clock - at for at in since.values()]
    assert sorted(waits)[int(0.99 * len(waits))] <= 3 * (SMALL + 1)
    assert len(waits) == SECONDS * SMALL


@pytest.mark.parametrize("weights", [[1] * 20, [1, 2, 4, 1, 2, 4, 1, 2, 4, 8]], ids=["alike", "weighted"])
def test_what_each_gets_follows_its_weight(connect: Connect, weights: list[int]) -> None:
    conn = connect()
    set_weights(conn, **{f"t{n}": weight for n, weight in enumerate(weights) if weight > 1})
    fill(conn, 6000, tenant=f"'t' || n % {len(weights)}")
    workers = [Worker(connect()) for _ in range(8)]
    taken: Counter[str | None] = Counter()
    for _ in range(25):
        for worker in workers:
            jobs = worker.claim(7 * len(weights) // 8)
            taken.update(tenants(conn, jobs))
            worker.end(jobs)
    shares = [taken[f"t{n}"] / weight for n, weight in enumerate(weights)]
    assert jain(shares) >= 0.999
    assert shares == pytest.approx([sum(shares) / len(shares)] * len(shares), rel=0.05)
