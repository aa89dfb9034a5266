"""The simulation against real runs on this machine: 1, 4 and 16 worker processes, 1 to 4 databases."""

from __future__ import annotations

import os
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import simpy

from holdfast._capacity.costs import measured
from holdfast._model.settings import Settings
from labs.simulation import real
from labs.simulation.database import Database, Hardware
from labs.simulation.machine import Cores
from labs.simulation.pipeline import MAINTAINED_EVERY
from labs.simulation.worker import SimulatedWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast._capacity.speed import Speed

SIZES = ((1, 1), (4, 1), (16, 1), (1, 4), (4, 4), (16, 4))
"""Worker processes and databases."""
JOBS = 20_000
RARE = 20.0
FEW = 100
HELD_SECONDS = 0.5
# Short leases, so that the recovery of a lost worker takes seconds.
LEASES: dict[str, object] = {"lease": 3.0, "heartbeat": 0.7, "reap_interval": 0.5, "shutdown_timeout": 2.0}
LEASES_MS = {f"{name}_ms": int(float(str(value)) * 1000) for name, value in LEASES.items()}


class Check(NamedTuple):
    """One comparison."""

    what: str
    processes: int
    databases: int
    simulated: float
    measured: float
    unit: str

    @property
    def ratio(self) -> float:
        return self.simulated / self.measured if self.measured else float("inf")


class SmallWorld:
    """Workers and servers that share the cores of one machine."""

    def __init__(
        self,
        processes: int,
        databases: int,
        speed: Speed,
        *,
        handler: float = 0.0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.env, random, costs = simpy.Environment(), Random(7), measured()
        reference = costs.reference
        machine = Cores(self.env, os.cpu_count() or 1, reference.server_seconds / speed.server_seconds)
        hardware = Hardware(
            commit=speed.commit_seconds, round_trip=speed.round_trip, connect=costs.connect.server, speed=1.0
        )
        self.databases = [
            Database(self.env, f"db{n}", costs, random, hardware, payload=real.PAYLOAD, cores=machine)
            for n in range(databases)
        ]
        loaded = Settings.load({}, **(settings or {}))
        self.workers = [
            SimulatedWorker(
                self.env, f"w{n}", self.databases, loaded, costs=costs, random=random, handler=handler, machine=machine
            )
            for n in range(processes)
        ]
        for worker in self.workers:
            self.at(random.uniform(0, 0.5), worker.start)

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        def later() -> simpy.events.ProcessGenerator:
            yield self.env.timeout(seconds)
            act()

        self.env.process(later())

    def run_until(self, done: Callable[[], bool], limit: float) -> float:
        """Run until this is so. Return the time."""
        while not done() and self.env.now < limit:
            self.env.run(self.env.now + 0.01)
        return float(self.env.now)

    @property
    def completed(self) -> int:
        return sum(database.completed for database in self.databases)


def throughput(processes: int, databases: int, jobs: int, speed: Speed) -> float:
    world = SmallWorld(processes, databases, speed)
    world.env.run(2.0)
    for database in world.databases:
        database.load("default", jobs)
    begun = world.env.now
    end = world.run_until(lambda: world.completed >= databases * jobs, 600.0)
    return databases * jobs / (end - begun)


def pickup(processes: int, databases: int, jobs: int, rate: float, speed: Speed) -> float:
    world = SmallWorld(processes, databases, speed)
    for number in range(jobs):
        database = world.databases[number % databases]
        world.at(5.0 + number / rate, partial(database.enqueue, "default", 1))
    world.run_until(lambda: world.completed >= jobs, 600.0)
    found = world.databases[0].outcome
    for database in world.databases[1:]:
        found.merge(database.outcome)
    return found.quantile(0.5)


def recovery(processes: int, databases: int, jobs: int, speed: Speed) -> float:
    world = SmallWorld(processes, databases, speed, handler=HELD_SECONDS, settings=LEASES)
    for database in world.databases:
        world.at(3.0, partial(database.enqueue, "default", jobs, per_call=jobs))
    world.at(4.0, world.workers[0].kill)
    world.run_until(lambda: world.completed >= databases * jobs, 600.0)
    return max((at for database in world.databases for at, _ in database.recovered_at), default=4.0) - 4.0


def idle_statements(processes: int, databases: int, speed: Speed) -> float:
    world = SmallWorld(processes, databases, speed)
    world.env.run(90.0)
    return sum(database.tally.rate("statements", 30.0, 90.0) for database in world.databases) / processes / databases


def validate(sizes: Sequence[tuple[int, int]], speed: Speed, scale: float = 1.0) -> list[Check]:
    """Make every comparison, the real run first."""
    checks: list[Check] = []
    jobs, few = max(2_000, round(JOBS * scale)), max(30, round(FEW * scale))

    def add(what: str, size: tuple[int, int], simulated: float, found: float, unit: str) -> None:
        checks.append(Check(what, *size, simulated, found, unit))
        print(f"  … {checks[-1]}", flush=True)

    for size in sizes:
        processes, databases = size
        found = real.throughput(processes, databases, jobs // databases)
        add("throughput", size, throughput(processes, databases, jobs // databases, speed), found, "jobs/s")
        found = real.pickup(processes, databases, few, RARE)
        add("enqueue to outcome, median", size, pickup(processes, databases, few, RARE, speed), found, "s")
        found = real.idle_statements(processes, databases, max(15.0, MAINTAINED_EVERY * scale))
        add("idle statements per worker", size, idle_statements(processes, databases, speed), found, "1/s")
        if processes > 1:
            held = 20 * processes
            found = real.recovery(processes, databases, held, HELD_SECONDS, LEASES_MS)
            add("recovery of a killed worker's jobs", size, recovery(processes, databases, held, speed), found, "s")
    return checks
