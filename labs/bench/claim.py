"""The cost of a claim behind many rows that it must skip, against the same claim on a small fresh table."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from labs.bench.explain import explained
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import checkpoint, connected, ground, progress
from labs.bench.load import load_history, load_jobs
from labs.bench.watch import Watch, alternate
from labs.bench.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    import psycopg

BUFFERS = 1.5
SECONDS = 2.0
REPEATS = {1: 100, 50: 60, 500: 30}
"""How often each size of claim is made, once for the time and once for the buffers."""
OTHERS = [f"bench.other{number}" for number in range(20)]


def others(conn: psycopg.Connection[Any], scale: float) -> None:
    """Half of them in a queue of this worker, of kinds it does not serve; half of its kind, in other queues."""
    load_jobs(conn, round(500_000 * scale), kinds=OTHERS)
    load_jobs(conn, round(500_000 * scale), queues=["slow", "mail", "pdf"])


def tomorrow(conn: psycopg.Connection[Any], scale: float) -> None:
    load_jobs(conn, round(1_000_000 * scale), due="now() + interval '1 day' + i * interval '1 millisecond'")


def history(conn: psycopg.Connection[Any], scale: float) -> None:
    load_history(conn, round(5_000_000 * scale))


def arrived(conn: psycopg.Connection[Any], scale: float) -> None:
    """Due, of its own kind: the planner still believes what ANALYZE saw before."""
    load_jobs(conn, round(1_000_000 * scale))


def in_flight(conn: psycopg.Connection[Any], scale: float) -> None:
    load_jobs(conn, round(100_000 * scale), in_flight=True)


SCENES: dict[str, Callable[[psycopg.Connection[Any], float], None]] = {
    "1,000,000 pending of unserved kinds and queues": others,
    "1,000,000 scheduled for tomorrow": tomorrow,
    "5,000,000 rows of history": history,
    "ANALYZE while empty, then 1,000,000 arrive": arrived,
    "100,000 in flight": in_flight,
}


@dataclass(frozen=True, slots=True)
class Cost:
    """A claim on the large table and on the small one."""

    batch: int
    buffers: tuple[float, float]
    seconds: tuple[float, float]

    @property
    def buffers_ratio(self) -> float:
        return self.buffers[0] / self.buffers[1]

    @property
    def seconds_ratio(self) -> float:
        return self.seconds[0] / self.seconds[1]


def measure(scale: float) -> Section:
    figures, rows = [], []
    with ground(autovacuum="off") as base:
        for name, load in SCENES.items():
            progress(f"claim: {name}")
            found = costs(base.database, load, scale)
            figures.append(Figure(f"{name}: buffers", max(cost.buffers_ratio for cost in found), limit=BUFFERS))
            figures.append(Figure(f"{name}: time", max(cost.seconds_ratio for cost in found), limit=SECONDS))
            rows += [
                (
                    name,
                    str(cost.batch),
                    *(f"{count:,.0f}" for count in cost.buffers),
                    *(f"{1000 * seconds:.2f}" for seconds in cost.seconds),
                )
                for cost in found
            ]
    return Section(figures, [table(("", "claimed", "buffers", "small table", "ms", "small table"), rows)])


def costs(
    database: Callable[[], AbstractContextManager[str]],
    load: Callable[[psycopg.Connection[Any], float], None],
    scale: float,
    *,
    repeats: Mapping[int, int] = REPEATS,
) -> list[Cost]:
    """Claim by turns in a database with the load and in one without."""
    with ExitStack() as stack:
        large, small = (stack.enter_context(connected(stack.enter_context(database()))) for _ in range(2))
        workers = [Worker(large), Worker(small)]
        for worker in workers:
            # Plans are made, and kept, while the table is empty.
            worker.conn.execute("ANALYZE holdfast.job", prepare=False)
            worker.drain()
        load(large, scale)
        wanted = sum(batch * 2 * times for batch, times in repeats.items())
        for worker in workers:
            load_jobs(worker.conn, wanted)
            checkpoint(worker.conn)
        return [_cost(workers, batch, times) for batch, times in repeats.items()]


def _cost(workers: list[Worker], batch: int, times: int) -> Cost:
    watch = Watch()
    buffers: dict[int, list[int]] = {0: [], 1: []}

    def timed(number: int) -> None:
        with watch(str(number)):
            jobs = workers[number].claim(batch).jobs
        assert len(jobs) == batch
        workers[number].finish(jobs)

    def counted(number: int) -> None:
        worker = workers[number]
        touched = run_sync(worker.conn, explained(worker.statement(batch, worker.floors.reach())))
        assert touched.rows == batch + 1, "the last row is about the call"
        buffers[number].append(touched.buffers)

    alternate([lambda: timed(0), lambda: timed(1)], times)
    alternate([lambda: counted(0), lambda: counted(1)], times)
    return Cost(batch, (median(buffers[0]), median(buffers[1])), (watch.median("0"), watch.median("1")))
