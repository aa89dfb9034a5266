from __future__ import annotations

from collections import Counter

import pytest

from labs.simulation.machine import Cores, Histogram
from labs.simulation.scenarios import herd
from labs.simulation.world import Plan, World, fairness, placement

SMALL = Plan(workers=8, databases=2, racks=4, regions=2, rate=1_000.0, start_within=1.0)
# Leases of seconds, so that a lost worker is found soon.
SHORT: dict[str, object] = {"lease": 3.0, "heartbeat": 0.7, "reap_interval": 0.5, "shutdown_timeout": 2.0}


def held(world: World) -> int:
    pipelines = [pipeline for worker in world.workers if worker.alive for pipeline in worker.pipelines]
    claiming = sum(database.in_flight + database.lost for database in world.databases)
    return claiming + sum(group.count for pipeline in pipelines for group in pipeline.held())


def enqueued(world: World) -> int:
    return round(sum(database.tally.between("enqueued", 0, 1000) for database in world.databases))


def completed(world: World) -> int:
    return sum(database.completed for database in world.databases)


def with_settings(**changes: object) -> Plan:
    return Plan(**{**SMALL.__dict__, **changes})


def test_no_job_is_lost_and_the_load_is_borne() -> None:
    world = World(SMALL)
    world.run(6.0)
    assert enqueued(world) == completed(world) + world.waiting + held(world)
    assert world.total("completed", 3, 6) == pytest.approx(SMALL.rate, rel=0.1)


@pytest.mark.nightly
def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> tuple[int, float]:
        world = World(with_settings(seed=seed))
        world.run(3.0)
        return completed(world), world.pickup().quantile(0.99)

    assert run(1) == run(1)
    assert run(1) != run(2)


@pytest.mark.nightly
def test_the_jobs_of_a_lost_rack_are_done_after_their_leases() -> None:
    world = World(with_settings(settings=SHORT, rate=3_000.0))
    lost: list[int] = []
    rack = [worker for worker in world.workers if worker.rack == 0]

    def fail() -> None:
        world.kill_workers(rack)
        lost.append(sum(database.lost for database in world.databases))

    world.at(3.01, fail)
    world.run(20.0)
    recovered = [entry for database in world.databases for entry in database.recovered_at]
    assert sum(count for _, count in recovered) >= lost[0] > 0
    # The lease, a pass of the reaper, the retry delay, and the time that suspects run apart.
    assert 3.0 + 3.0 + 5.0 <= max(at for at, _ in recovered) <= 3.0 + 3.0 + 0.5 + 5.5 + 5.0
    assert enqueued(world) == completed(world) + world.waiting + held(world)


@pytest.mark.nightly
def test_connections_come_back_after_an_outage() -> None:
    world = World(SMALL)
    world.run(3.0)
    world.crash(world.databases, 2.0)
    world.run(4.0)
    assert world.connections == [0, 0]
    world.run(20.0)
    # Each worker has four. The one that writes outcomes is opened again at the next outcome.
    assert all(3 * SMALL.workers <= number <= 4 * SMALL.workers for number in world.connections)
    assert enqueued(world) == completed(world) + world.waiting + held(world)


@pytest.mark.nightly
def test_workers_that_reconnect_together_beat_apart() -> None:
    def highest(*, beats_apart: bool) -> float:
        run = herd(0.1, beats_apart=beats_apart)
        return next(fact.value for fact in run.facts if fact.what.startswith("heartbeats: highest"))

    assert highest(beats_apart=True) < highest(beats_apart=False) / 2


@pytest.mark.nightly
def test_every_database_has_as_many_workers_and_loses_few_with_a_rack() -> None:
    served = Counter(database for worker in range(1000) for database in placement(worker, 100, 2))
    assert set(served.values()) == {20}
    in_rack = Counter(database for worker in range(40) for database in placement(worker, 100, 2))
    assert max(in_rack.values()) <= 2


@pytest.mark.nightly
def test_cores_work_side_by_side() -> None:
    world = World(with_settings(rate=0.0))
    cores = Cores(world.env, 2)
    assert [cores.work(1.0), cores.work(1.0), cores.work(1.0)] == [1.0, 1.0, 2.0]
    found = Histogram()
    found.add(0.1, 99)
    found.add(5.0)
    assert found.quantile(0.5) == pytest.approx(0.1, rel=0.1)
    assert found.quantile(0.999) == pytest.approx(5.0, rel=0.1)
    assert fairness([1, 1, 1]) == pytest.approx(1.0)
    assert fairness([3, 0, 0]) == pytest.approx(1 / 3)
