"""The largest rate that a plan can bear, and what gives out first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from holdfast._capacity.resources import demands, per_worker

if TYPE_CHECKING:
    from holdfast._capacity.costs import Costs
    from holdfast._capacity.deployment import Deployment
    from holdfast._capacity.resources import Demand

HEADROOM = 0.7
"""Deployment to use at most this share of a resource: queues grow without bound as it approaches 1."""
LARGEST = 1e9
MOST_WORKERS = 100_000
_STEPS = 60
OF_WORKERS = ("CPU of the workers", "slots of the workers", "claims of the workers")


class ResourceLine(NamedTuple):
    """One resource: its use at the planned rate, and the rate at which it gives out."""

    demand: Demand
    ceiling: float
    """Jobs per second; infinite if no rate exhausts it."""


class Ceiling(NamedTuple):
    """The answer: every resource, and the largest rate that all of them bear."""

    plan: Deployment
    lines: list[ResourceLine]

    @property
    def first(self) -> ResourceLine:
        """The resource that gives out first."""
        return min(self.lines, key=lambda line: line.ceiling)

    @property
    def rate(self) -> float:
        """The largest rate that fits, in jobs per second."""
        return self.first.ceiling

    @property
    def fits(self) -> bool:
        """Whether the planned rate is within the headroom of every resource."""
        return all(line.demand.share <= HEADROOM for line in self.lines if line.demand.resource != "connections") and (
            self.rate >= self.plan.jobs
        )


def find_ceiling(plan: Deployment, costs: Costs) -> Ceiling:
    room = plan.connections // per_worker(plan, costs)
    served = plan.served_by(min(plan.workers, room))
    lines = []
    for place, demand in enumerate(demands(plan, costs)):
        if demand.resource == "connections":
            rate = math.inf if served.workers == plan.workers else _rate_of_workers(served, costs)
        else:
            rate = _largest(plan, costs, place)
        lines.append(ResourceLine(demand, rate))
    return Ceiling(plan, lines)


def workers_for(plan: Deployment, costs: Costs) -> int:
    """Return the least number of workers whose CPU, slots and claims bear the planned rate with headroom."""
    low, high = 0, 1
    while high < MOST_WORKERS and not _enough(plan.served_by(high), costs):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _enough(plan.served_by(middle), costs) else (middle, high)
    return high


def _enough(plan: Deployment, costs: Costs) -> bool:
    return all(demand.share <= HEADROOM for demand in demands(plan, costs) if demand.resource in OF_WORKERS)


def _rate_of_workers(plan: Deployment, costs: Costs) -> float:
    if plan.workers == 0:
        return 0.0
    places = [place for place, demand in enumerate(demands(plan, costs)) if demand.resource in OF_WORKERS]
    return min(_largest(plan, costs, place) for place in places)


def _largest(plan: Deployment, costs: Costs, place: int) -> float:
    """Return the largest rate at which this resource suffices, by halving: batches grow with the rate."""

    def suffices(rate: float) -> bool:
        return demands(plan.at(rate), costs)[place].share <= 1

    if suffices(LARGEST):
        return math.inf
    low, high = 0.0, LARGEST
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if suffices(middle) else (low, middle)
    return low
