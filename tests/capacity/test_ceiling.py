from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from holdfast._capacity.ceiling import HEADROOM, find_ceiling, workers_for
from holdfast._capacity.costs import Cost, Costs, measured
from holdfast._capacity.deployment import Deployment
from holdfast._capacity.resources import demands
from holdfast._engine.headroom import connections_held
from holdfast._model.settings import Settings

# So much of everything that nothing gives out.
AMPLE = Deployment(
    jobs=1000,
    workers=100,
    concurrency=1000,
    batch=500,
    cores=1000,
    wal=1e12,
    commits=1e9,
    commit=0.0,
    round_trip=0.0,
    connections=1_000_000,
    disk=1e18,
)


@pytest.fixture(scope="module")
def costs() -> Costs:
    return measured()


@pytest.mark.parametrize(
    ("scarce", "first"),
    [
        ({"cores": 0.01}, "CPU of the server"),
        ({"cores": 0.01, "shared": True}, "CPU of the machine"),
        ({"handler_cpu": 10.0}, "CPU of the workers"),
        ({"handler": 1000.0, "concurrency": 1}, "slots of the workers"),
        ({"commit": 60.0}, "claims of the workers"),
        ({"wal": 1.0}, "WAL"),
        ({"commits": 0.1}, "commits"),
        ({"connections": 3}, "connections"),
        ({"disk": 1.0}, "disk"),
    ],
)
def test_the_scarce_resource_gives_out_first(costs: Costs, scarce: dict[str, Any], first: str) -> None:
    found = find_ceiling(replace(AMPLE, **scarce), costs)
    assert found.first.demand.resource == first
    assert found.rate < AMPLE.jobs
    assert not found.fits


def test_what_fits(costs: Costs) -> None:
    found = find_ceiling(AMPLE, costs)
    assert found.fits
    assert found.rate > AMPLE.jobs


def test_the_ceiling_is_where_the_first_resource_is_used_up(costs: Costs) -> None:
    plan = Deployment(jobs=500, workers=8, cores=4)
    found = find_ceiling(plan, costs)
    shares = {demand.resource: demand.share for demand in demands(plan.at(found.rate), costs)}
    assert shares[found.first.demand.resource] == pytest.approx(1.0, abs=1e-6)
    assert max(shares.values()) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("field", ["payload", "handler", "days", "events", "round_trip", "commit", "subscriptions"])
def test_more_of_a_burden_never_raises_the_ceiling(costs: Costs, field: str) -> None:
    plan = Deployment(jobs=500, workers=8, handler=0.01, events=10.0)
    more = replace(plan, **{field: getattr(plan, field) * 3})
    assert find_ceiling(more, costs).rate <= find_ceiling(plan, costs).rate


@pytest.mark.parametrize("field", ["cores", "wal", "commits", "connections", "disk", "server_speed", "client_speed"])
def test_more_hardware_never_lowers_the_ceiling(costs: Costs, field: str) -> None:
    plan = Deployment(jobs=500, workers=8, handler=0.01, events=10.0)
    more = replace(plan, **{field: getattr(plan, field) * 3})
    assert find_ceiling(more, costs).rate >= find_ceiling(plan, costs).rate


def test_workers_that_have_no_connections_do_not_count(costs: Costs) -> None:
    room = 2 * costs.connections + 1
    plan = replace(AMPLE, workers=50, concurrency=1, handler=1.0, connections=room)
    found = find_ceiling(plan, costs)
    assert found.first.demand.resource == "connections"
    assert found.rate == pytest.approx(find_ceiling(replace(plan, workers=2), costs).rate)
    assert find_ceiling(replace(plan, connections=1), costs).rate == 0


@pytest.mark.parametrize("jobs", [0.1, 100, 10_000, 1_000_000])
def test_no_worker_fewer_would_do(costs: Costs, jobs: float) -> None:
    plan = replace(AMPLE, jobs=jobs, handler=0.05, concurrency=10)
    workers = workers_for(plan, costs)

    def busiest(count: int) -> float:
        of_workers = [demand for demand in demands(plan.served_by(count), costs) if demand.resource.endswith("workers")]
        return max(demand.share for demand in of_workers)

    assert busiest(workers) <= HEADROOM
    assert workers == 1 or busiest(workers - 1) > HEADROOM


def test_measured_costs_are_plausible(costs: Costs) -> None:
    for name, step in costs.steps.items():
        for cost in (step.call, *step.items):
            assert all(part >= 0 and math.isfinite(part) for part in cost), name
        assert step.items[-1].server > 0
    # A payload is written to the WAL when it is enqueued, and again when the job is finished.
    more = costs.item("enqueue", 9000).wal - costs.item("enqueue", 5000).wal
    assert more == pytest.approx(4000, rel=0.2)
    assert costs.bytes_kept("completed", 10_000) > 10_000
    assert costs.connections == connections_held(Settings.load({}))


def test_a_call_is_shared_by_its_items(costs: Costs) -> None:
    alone, together = costs.item("claim", 1000), costs.item("claim", 1000, 100)
    assert alone.server > together.server
    assert costs.call("claim", 1000, 100) == pytest.approx(together.times(100))
    assert Cost(1, 2, 3).plus(Cost(1, 1, 1)) == (2, 3, 4)
