"""Throughput while a session holds an old snapshot, so that no dead row can be vacuumed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast._drivers import run_sync
from holdfast._model.new_job import Envelope, NewJob
from holdfast._model.retry import Retry
from holdfast._model.work import Lease
from holdfast._store.enqueue import enqueue_jobs
from holdfast._store.lease import ReapFloor, reap_jobs
from labs.bench import chart
from labs.bench.explain import explained
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import connected, ground, progress
from labs.bench.load import KIND, PAYLOAD
from labs.bench.plain import Plain
from labs.bench.watch import no_garbage_collection
from labs.bench.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KEPT = 0.8
FLAT = 1.5
SECONDS = 120.0
"""For each of the three that take turns."""
SLICE = 0.5
BATCH = 500
FORGOTTEN = "bench.forgotten"
FORGOTTEN_PER_SLICE = 10
LEASE = Lease(seconds=5)
"""Short, so that the leases of most of the run have ended when it ends."""


@dataclass
class Rate:
    """Jobs per second, slice by slice."""

    cycle: Callable[[], None]
    points: list[tuple[float, float]] = field(default_factory=list)

    def run(self, at: float) -> None:
        begun, jobs = time.perf_counter(), 0
        while (took := time.perf_counter() - begun) < SLICE:
            self.cycle()
            jobs += BATCH
        self.points.append((at, jobs / took))

    @property
    def kept(self) -> float:
        """The last third against the first."""
        return ratio_of_thirds([rate for _, rate in self.points])

    @property
    def thirds(self) -> tuple[str, str]:
        first, last = first_and_last([rate for _, rate in self.points])
        return f"{first:,.0f}", f"{last:,.0f}"


class Reaper:
    """Takes leases away as a worker's reaper would, once per slice, and there are always some."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn
        self.forgetful = Worker(conn, kinds=[FORGOTTEN], lease=Lease(seconds=2))
        self.floor = ReapFloor()
        self.seconds: list[float] = []
        """Of each pass that began where the last one ended."""
        self.buffers: list[int] = []
        self.whole_seconds: list[float] = []
        """Of each that began at the beginning."""

    def forget(self) -> None:
        """Claim some jobs and never finish them."""
        run_sync(self.conn, enqueue_jobs([NewJob(Envelope(FORGOTTEN), PAYLOAD)] * FORGOTTEN_PER_SLICE))
        self.forgetful.claim(FORGOTTEN_PER_SLICE)

    def tick(self) -> None:
        """Make a pass, whose time is taken, and another, whose buffers are counted."""
        retries = {KIND: Retry(), FORGOTTEN: Retry(max_attempts=3)}
        since = self.floor.since()
        whole = since == "-infinity"
        begun = time.perf_counter()
        limit = 500 if whole else FORGOTTEN_PER_SLICE // 2
        reaped = run_sync(self.conn, reap_jobs(retries, since=since, limit=limit)).jobs
        took = time.perf_counter() - begun
        (self.whole_seconds if whole else self.seconds).append(took)
        if not whole:
            self.buffers.append(run_sync(self.conn, explained(reap_jobs(retries, since=since))).buffers)
        if reaped:
            self.floor.advance(reaped[-1].locked_until + reaped[-1].stale, whole=whole, took=took)


def measure(scale: float) -> Section:
    with (
        ground() as base,
        base.database() as url,
        base.database() as free_url,
        connected(url) as conn,
        connected(free_url) as free_conn,
        psycopg.connect(url) as pin,
    ):
        plain, reaper = Plain(conn), Reaper(conn)
        plain.create()

        def plain_cycle() -> None:
            plain.enqueue([PAYLOAD] * BATCH)
            plain.finish(plain.claim(BATCH))

        ours, theirs, free = Rate(our_cycle(conn)), Rate(plain_cycle), Rate(our_cycle(free_conn))
        pin.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        pin.execute("SELECT count(*) FROM holdfast.job")
        turns = (ours, theirs, free)
        for rate in turns:
            rate.cycle()
        begun = time.perf_counter()
        with no_garbage_collection():
            for number in range(slices := round(SECONDS * scale / SLICE)):
                for rate in turns if number % 2 else reversed(turns):
                    rate.run(time.perf_counter() - begun)
                    reaper.forget()
                    reaper.tick()
                if number % 20 == 19:
                    progress(
                        f"pinned: {number + 1} of {slices} slices: {ours.points[-1][1]:,.0f}/s, plain "
                        f"{theirs.points[-1][1]:,.0f}/s, not pinned {free.points[-1][1]:,.0f}/s"
                    )
    return _section(ours, theirs, free, reaper)


def our_cycle(conn: psycopg.Connection[Any]) -> Callable[[], None]:
    worker = Worker(conn, lease=LEASE)
    jobs = [NewJob[object](Envelope(KIND), PAYLOAD)] * BATCH

    def cycle() -> None:
        run_sync(conn, enqueue_jobs(jobs))
        worker.finish(worker.claim(BATCH).jobs)

    return cycle


def _section(ours: Rate, theirs: Rate, free: Rate, reaper: Reaper) -> Section:
    whole = reaper.whole_seconds
    figures = [
        # Against the same elsewhere: what else the machine does meanwhile is not the snapshot's doing.
        Figure("throughput kept, last third against first", ours.kept / free.kept, least=KEPT),
        Figure("the same, plain pair without floors", theirs.kept / free.kept),
        # A pass looks at the leases that have ended since the last one: the more jobs, the more of them.
        Figure("reaper's pass, time per job, the same", ratio_of_thirds(reaper.seconds) / ours.kept, limit=FLAT),
        Figure("reaper's pass, buffers per job, the same", ratio_of_thirds(reaper.buffers) / ours.kept, limit=FLAT),
        Figure(
            "reaper's looks at all leases, part of the time", 100 * sum(whole) / ours.points[-1][0], limit=5, unit=" %"
        ),
    ]
    rows = [
        ("ours, jobs/s", *ours.thirds),
        ("plain, jobs/s", *theirs.thirds),
        ("ours in a database without the snapshot, jobs/s", *free.thirds),
        ("reaper's pass, ms", *(f"{1000 * seconds:.2f}" for seconds in first_and_last(reaper.seconds))),
        ("reaper's pass, buffers", *(f"{count:,.0f}" for count in first_and_last(reaper.buffers))),
        ("reaper's looks at all leases, ms", *(f"{1000 * seconds:.1f}" for seconds in first_and_last(whole))),
        ("reaper's looks at all leases, number", str(len(whole)), f"longest {1000 * max(whole):.0f} ms"),
    ]
    series = {"Holdfast": ours.points, "plain, no floor": theirs.points, "Holdfast, not held": free.points}
    picture = chart.lines(
        "Enqueue, claim, finish in batches of 500 while an old snapshot is held (jobs/s)",
        "seconds, of which each has a third",
        {name: smoothed(points) for name, points in series.items()},
    )
    return Section(figures, [table(("", "first third", "last third"), rows)], {"pinned": picture})


def ratio_of_thirds(values: Sequence[float]) -> float:
    first, last = first_and_last(values)
    return last / first


def first_and_last(values: Sequence[float]) -> tuple[float, float]:
    first, last = _thirds(list(values))
    return median(first), median(last)


def smoothed(points: Sequence[tuple[float, float]], width: int = 5) -> list[tuple[float, float]]:
    """Return running medians: one slow slice is the machine's, not the queue's."""
    half = width // 2
    return [
        (at, median(rate for _, rate in points[max(0, number - half) : number + half + 1]))
        for number, (at, _) in enumerate(points)
    ]


def _thirds(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    third = max(1, len(values) // 3)
    return values[:third], values[-third:]
