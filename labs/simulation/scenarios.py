"""The runs that are reported: a steady load, and what fails in it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from labs.simulation.machine import Histogram
from labs.simulation.world import Plan, World, fairness

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from labs.simulation.database import Database

WARM_UP = 8.0
"""Workers have started, and the backlog of the first seconds is gone."""
FAILS_AT = 15.0
FIFTH = 0.2
"""Two runs have a fifth of the fleet, which consists of pairs of databases with twenty workers that share nothing."""


class Fact(NamedTuple):
    """One line of a scenario's table."""

    what: str
    value: float
    unit: str = ""


@dataclass
class Run:
    """The result of one scenario."""

    title: str
    text: str
    facts: list[Fact]
    lines: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Series for a picture, by name."""
    picture: str = ""
    """The title of the picture."""


def scaled(plan: Plan, scale: float) -> Plan:
    """Return a smaller world of the same kind."""
    return replace(
        plan,
        workers=max(20, round(plan.workers * scale)),
        databases=max(2, round(plan.databases * scale / 2) * 2),
        racks=max(5, round(plan.racks * scale)),
        rate=max(2, round(plan.databases * scale / 2) * 2) * plan.rate / plan.databases,
    )


def steady(scale: float = 1.0, seconds: float = 20.0) -> Run:
    world = World(scaled(Plan(), scale))
    _forget_pickups_at(world, WARM_UP)
    world.run(seconds)
    between = (WARM_UP, seconds)
    rates = [database.tally.rate("completed", *between) for database in world.databases]
    pickup = world.pickup()
    busy = sum(database.cores.busy for database in world.databases) / seconds / len(world.databases)
    return Run(
        "A steady load",
        "Every database gets the same load. Each worker serves two databases.",
        [
            *_size(world),
            Fact("enqueued", world.total("enqueued", *between), "jobs/s"),
            Fact("completed", world.total("completed", *between), "jobs/s"),
            Fact("from enqueueing to the handler, median", pickup.quantile(0.5) * 1000, "ms"),
            Fact("the same, 99th of a hundred", pickup.quantile(0.99) * 1000, "ms"),
            Fact("fairness between databases (1 is best)", fairness(rates)),
            Fact("connections of each database", max(world.connections)),
            Fact("statements of workers at each database", _each(world, "statements", between), "1/s"),
            Fact("commits at each database", _each(world, "commits", between), "1/s"),
            Fact("notifications at each database", _each(world, "notifications", between), "1/s"),
            Fact("busy cores of each server", busy),
            Fact(
                "busy share of a worker's core",
                sum(worker.busy for worker in world.workers) / seconds / len(world.workers),
            ),
        ],
    )


def rack(scale: float = 1.0, seconds: float = 110.0) -> Run:
    world = World(scaled(Plan(), scale))
    lost: list[int] = []

    def fail() -> None:
        world.kill_workers([worker for worker in world.workers if worker.rack == 0])
        lost.append(sum(database.lost for database in world.databases))

    world.at(FAILS_AT, fail)
    world.run(seconds)
    return Run(
        "A rack of workers is lost",
        f"At {FAILS_AT:.0f} s all workers of one rack end at once. Their jobs wait for their leases, and are then run "
        "apart.",
        [
            *_size(world),
            Fact("workers lost", sum(not worker.alive for worker in world.workers)),
            Fact("jobs that they held", lost[0]),
            *_recovery(world, FAILS_AT),
            Fact("completed in the 5 s after the loss", world.total("completed", FAILS_AT, FAILS_AT + 5), "jobs/s"),
            Fact("enqueued", world.total("enqueued", WARM_UP, FAILS_AT), "jobs/s"),
            Fact("jobs waiting at the end", world.waiting),
        ],
        {
            "enqueued": world.series("enqueued", seconds),
            "completed": world.series("completed", seconds),
        },
        "A rack of workers is lost at 15 s (jobs/s)",
    )


def region(scale: float = 1.0, seconds: float = 120.0, down: float = 30.0) -> Run:
    world = World(scaled(Plan(), scale))
    gone = [database for database in world.databases if world.region_of(database) == 0]
    others = [database for database in world.databases if world.region_of(database) != 0]
    peak: list[float] = []

    def fail() -> None:
        world.kill_workers([worker for worker in world.workers if worker.region == 0])
        world.crash(gone, down)

    world.at(FAILS_AT, fail)
    world.at(FAILS_AT - 0.001, lambda: _forget_pickups(others))
    world.at(FAILS_AT + down, lambda: peak.append(_pickup(others).quantile(0.99)))
    world.run(seconds)
    back = FAILS_AT + down
    return Run(
        "A region is lost",
        f"At {FAILS_AT:.0f} s a fifth of the workers and a fifth of the databases are lost. The databases are promoted "
        f"elsewhere and answer after {down:.0f} s; the workers do not come back. Workers of other regions serve these "
        "databases too.",
        [
            *_size(world),
            Fact("workers lost", sum(not worker.alive for worker in world.workers)),
            Fact("databases down", len(gone)),
            Fact("other databases meanwhile: handler starts after, 99th of a hundred", peak[0] * 1000, "ms"),
            Fact("other databases meanwhile: completed", _rate(others, "completed", FAILS_AT + 1, back), "jobs/s"),
            Fact("other databases: enqueued", _rate(others, "enqueued", FAILS_AT + 1, back), "jobs/s"),
            Fact(
                "first second after the return: connections opened at each of them",
                _rate(gone, "connects", back, back + 1) / len(gone),
                "1/s",
            ),
            Fact(
                "highest rate of it in a tenth of a second",
                max(d.tally.highest("connects", back, back + 2) for d in gone),
                "1/s",
            ),
            Fact("back to the full rate after", _full_rate_after(gone, world, back, seconds) - back, "s"),
            *_recovery(world, FAILS_AT),
        ],
        {
            "databases of the region": [(t, y) for t, y in _series(gone, "completed", seconds)],
            "other databases": [(t, y) for t, y in _series(others, "completed", seconds)],
        },
        "A region is lost at 15 s, its databases answer again at 45 s (completed jobs/s)",
    )


def herd(scale: float = 1.0, workers: int = 1000, *, beats_apart: bool = True) -> Run:
    """All workers serve one database, which restarts. Nothing is to do."""
    seconds, down = 130.0, 10.0
    plan = Plan(
        workers=max(20, round(workers * scale)),
        databases=1,
        served=1,
        rate=0.0,
        beats_apart=beats_apart,
        start_within=60.0,
    )
    world = World(plan)
    [database] = world.databases
    world.at(60.0, lambda: world.crash([database], down))
    world.run(seconds)
    back = 70.0
    return Run(
        "Every worker serves one database, and it restarts",
        f"{plan.workers:,} idle workers, started within a minute. At 60 s the server is away for {down:.0f} s.",
        [
            Fact("connections", database.connections),
            Fact("idle statements before", database.tally.rate("statements", 30, 60), "1/s"),
            Fact(
                "highest rate of connections in a tenth of a second",
                database.tally.highest("connects", back, back + 5),
                "1/s",
            ),
            Fact("connections restored after", _restored(world, back), "s"),
            Fact(
                "heartbeats: highest rate in a tenth of a second, later",
                database.tally.highest("beats", 85, 130),
                "1/s",
            ),
            Fact("heartbeats: mean rate", database.tally.rate("beats", 85, 130), "1/s"),
        ],
        {"statements": list(database.tally.series("statements", seconds))},
        "Statements of 1,000 idle workers at one database that restarts at 60 s (1/s)",
    )


def hot(scale: float = 1.0, seconds: float = 30.0) -> Run:
    """One database gets more than its workers can bear."""
    plan = replace(scaled(Plan(), scale), hot=3.0)
    world = World(plan)
    _forget_pickups_at(world, WARM_UP)
    world.run(seconds)
    first, neighbours = (
        world.databases[0],
        {
            database
            for worker in world.workers
            if world.databases[0] in [pipeline.database for pipeline in worker.pipelines]
            for database in [pipeline.database for pipeline in worker.pipelines]
        }
        - {world.databases[0]},
    )
    others = [database for database in world.databases if database is not first and database not in neighbours]
    between = (WARM_UP, seconds)
    return Run(
        "One database gets three times its load",
        "Workers that serve it serve another one too. Slots are given to both in turn.",
        [
            *_size(world),
            Fact("the hot one: enqueued", first.tally.rate("enqueued", *between), "jobs/s"),
            Fact("the hot one: completed", first.tally.rate("completed", *between), "jobs/s"),
            Fact(
                "the one that shares its workers: completed",
                _rate(list(neighbours), "completed", *between) / max(1, len(neighbours)),
                "jobs/s",
            ),
            Fact(
                "the same: handler starts after, 99th of a hundred",
                _pickup(list(neighbours)).quantile(0.99) * 1000,
                "ms",
            ),
            Fact("all others: handler starts after, 99th of a hundred", _pickup(others).quantile(0.99) * 1000, "ms"),
        ],
    )


def _size(world: World) -> list[Fact]:
    return [Fact("workers", len(world.workers)), Fact("databases", len(world.databases))]


def _each(world: World, name: str, between: tuple[float, float]) -> float:
    return world.total(name, *between) / len(world.databases)


def _rate(databases: Sequence[Database], name: str, start: float, end: float) -> float:
    return sum(database.tally.rate(name, start, end) for database in databases)


def _series(databases: Sequence[Database], name: str, end: float) -> list[tuple[float, float]]:
    columns = [list(database.tally.series(name, end)) for database in databases]
    return [(points[0][0], sum(point[1] for point in points)) for points in zip(*columns, strict=True)]


def _pickup(databases: Sequence[Database]) -> Histogram:
    found = Histogram()
    for database in databases:
        found.merge(database.pickup)
    return found


def _forget_pickups(databases: Sequence[Database]) -> None:
    for database in databases:
        database.pickup = Histogram()


def _forget_pickups_at(world: World, seconds: float) -> None:
    world.at(seconds, lambda: _forget_pickups(world.databases))


def _recovery(world: World, since: float) -> list[Fact]:
    """Return when the jobs of lost workers were done."""
    done = sorted(entry for database in world.databases for entry in database.recovered_at)
    total = sum(count for _, count in done)
    half, seen = 0.0, 0
    for at, count in done:
        seen += count
        if seen * 2 >= total:
            half = at
            break
    left = sum(database.lost for database in world.databases)
    return [
        Fact("half of their jobs done again after", half - since if done else 0.0, "s"),
        Fact("all of them after", done[-1][0] - since if done else 0.0, "s"),
        Fact("not done at the end", left),
    ]


def _full_rate_after(databases: Sequence[Database], world: World, start: float, end: float) -> float:
    """Return when these databases complete again as many jobs as are enqueued."""
    wanted = len(databases) * world.plan.rate / world.plan.databases
    at = start
    while at < end - 1:
        if _rate(databases, "completed", at, at + 1) >= 0.95 * wanted:
            return at
        at += 0.5
    return end


def _restored(world: World, back: float) -> float:
    """Return how long it took until no more connections were opened."""
    tally = world.databases[0].tally
    at = back
    while tally.between("connects", at, at + 5) > 0 and at < back + 60:
        at += 0.5
    return at - back


SCENARIOS: dict[str, Callable[[float], Run]] = {
    "steady": steady,
    "rack": rack,
    "region": lambda scale: region(scale * FIFTH),
    "herd": herd,
    "herd-together": lambda scale: herd(scale, beats_apart=False),
    "hot": lambda scale: hot(scale * FIFTH),
}
