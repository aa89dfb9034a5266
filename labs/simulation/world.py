"""A fleet: regions with racks of workers and with databases, and what fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import simpy

from holdfast._capacity.costs import measured
from holdfast._model.settings import Settings
from labs.simulation.database import Database, Hardware
from labs.simulation.machine import Histogram
from labs.simulation.producer import Producer
from labs.simulation.worker import SimulatedWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size and the load of a world."""

    workers: int = 1000
    databases: int = 100
    served: int = 2
    """Databases that each worker serves."""
    regions: int = 5
    racks: int = 25
    rate: float = 1_000_000.0
    """Jobs per second over all databases."""
    per_call: float = 10.0
    """Jobs in one call of a producer."""
    payload: float = 1000.0
    handler: float = 0.05
    spread: float = 0.5
    concurrency: int = 100
    batch: int = 50
    hardware: Hardware = field(default_factory=Hardware)
    start_within: float = 5.0
    """Workers start at random within so many seconds."""
    beats_apart: bool = True
    """Whether workers that reconnect together beat at different times later."""
    hot: float = 1.0
    """The load of the first database, against that of the others."""
    settings: dict[str, object] = field(default_factory=dict)
    seed: int = 7


class World:
    """Everything that runs. The same plan gives the same run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.env = simpy.Environment()
        self.random = Random(plan.seed)
        self.costs = measured()
        given = {"concurrency": plan.concurrency, "batch_size": plan.batch} | plan.settings
        self.settings = Settings.load({}, **given)
        self.databases = [
            Database(self.env, f"db{n}", self.costs, self.random, plan.hardware, payload=plan.payload, coarse=True)
            for n in range(plan.databases)
        ]
        self.producers = [
            Producer(self.env, database, self._rate(n), self.random, per_call=plan.per_call)
            for n, database in enumerate(self.databases)
        ]
        self.workers = [self._worker(n) for n in range(plan.workers)]
        for worker in self.workers:
            self.at(self.random.uniform(0, plan.start_within), worker.start)

    def _rate(self, number: int) -> float:
        return self.plan.rate / self.plan.databases * (self.plan.hot if number == 0 else 1)

    def _worker(self, number: int) -> SimulatedWorker:
        plan = self.plan
        return SimulatedWorker(
            self.env,
            f"w{number}",
            [self.databases[n] for n in placement(number, plan.databases, plan.served)],
            self.settings,
            costs=self.costs,
            random=self.random,
            handler=plan.handler,
            spread=plan.spread,
            rack=number * plan.racks // plan.workers,
            region=number * plan.regions // plan.workers,
            beats_apart=plan.beats_apart,
        )

    def region_of(self, database: Database) -> int:
        return self.databases.index(database) * self.plan.regions // self.plan.databases

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        """Do something at a time."""

        def later() -> simpy.events.ProcessGenerator:
            yield self.env.timeout(seconds - self.env.now)
            act()

        self.env.process(later())

    def run(self, until: float) -> None:
        self.env.run(until)

    # Failures

    def kill_workers(self, workers: Sequence[SimulatedWorker]) -> None:
        for worker in workers:
            if worker.alive:
                worker.kill()

    def crash(self, databases: Sequence[Database], seconds: float) -> None:
        """Take databases down for so long."""
        for database in databases:
            database.crash()
        for database in databases:
            self.at(self.env.now + seconds, database.recover)

    # Results

    def total(self, name: str, start: float, end: float) -> float:
        """Return the rate per second over all databases."""
        return sum(database.tally.rate(name, start, end) for database in self.databases)

    def series(self, name: str, end: float, step: float = 1.0) -> list[tuple[float, float]]:
        columns = [list(database.tally.series(name, end, step)) for database in self.databases]
        return [(points[0][0], sum(point[1] for point in points)) for points in zip(*columns, strict=True)]

    def pickup(self) -> Histogram:
        found = Histogram()
        for database in self.databases:
            found.merge(database.pickup)
        return found

    @property
    def waiting(self) -> int:
        return sum(sum(database.depth.values()) for database in self.databases)

    @property
    def connections(self) -> list[int]:
        return [database.connections for database in self.databases]


def placement(worker: int, databases: int, served: int) -> list[int]:
    """Return the databases that a worker serves: so many, and each served by as many workers as every other.

    Workers of one rack serve different databases, so that no database loses all its workers with one rack.

    >>> placement(0, 8, 4), placement(1, 8, 4)
    ([0, 2, 4, 6], [1, 3, 5, 7])
    """
    served = min(served, databases)
    stride = databases // served
    return sorted((worker + n * stride) % databases for n in range(served))


def fairness(shares: Sequence[float]) -> float:
    """Return Jain's index: 1 if all shares are equal, 1/n if one has everything."""
    total = sum(shares)
    return total * total / (len(shares) * sum(share * share for share in shares)) if total else 1.0
