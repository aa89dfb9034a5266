"""A load at the limit: producers that enqueue as fast as worker processes finish, and what that takes."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._model.new_job import Envelope, NewJob
from holdfast._store.enqueue import enqueue_jobs
from labs.bench.fleet import Meter, completed, live, wait_until, workers
from labs.bench.ground import checkpoint, connected, progress
from labs.bench.load import KIND
from labs.bench.steps import payload_of

if TYPE_CHECKING:
    import psycopg

    from labs.bench.fleet import Spent
    from labs.bench.ground import Ground

WARM_UP = 2.0
BACKLOG = 20_000
CHECK_SECONDS = 0.05
# Few may be slower than the workers, which then claim few jobs at a time.
PRODUCERS = 8


@dataclass(frozen=True)
class Case:
    payload: int
    workers: int
    enqueue_batch: int
    batch: int = 50
    concurrency: int = 10

    def __str__(self) -> str:
        together = f"{self.enqueue_batch} per call" if self.enqueue_batch > 1 else "one per call"
        return f"{self.payload:,} B, {self.workers} worker{'s' if self.workers > 1 else ''}, {together}"


@dataclass(frozen=True)
class Sustained:
    """The result of a load of some seconds."""

    spent: Spent
    producer: float
    """CPU seconds of the producer."""

    @property
    def rate(self) -> float:
        return self.spent.jobs / self.spent.seconds


def sustain(base: Ground, case: Case, seconds: float) -> Sustained:
    """Enqueue as fast as the workers finish, and count what that takes."""
    with (
        base.database() as url,
        connected(url) as conn,
        workers(url, case.workers, batch_size=case.batch, concurrency=case.concurrency) as pids,
    ):
        wait_until(lambda: live(conn) == case.workers, "the workers start")
        checkpoint(conn)
        made = [NewJob[object](Envelope(KIND), payload_of(case.payload))] * case.enqueue_batch
        warm = _enqueue_for(conn, url, made, WARM_UP)
        before = _waiting(conn)
        used = time.process_time()
        with Meter(conn, base.server.pid, pids).spent() as found:
            enqueued = _enqueue_for(conn, url, made, seconds, before=warm)
            left = _waiting(conn)
        used = time.process_time() - used
        wait_until(lambda: _waiting(conn) == 0, "the rest is done")
    progress(f"  {left} waited at the end")
    return Sustained(found[0]._replace(jobs=enqueued + before - left), used)


def _enqueue_for(
    conn: psycopg.Connection[Any], url: str, made: list[NewJob[object]], seconds: float, *, before: int = 0
) -> int:
    """Enqueue over several connections, and wait whenever enough jobs wait. Return how many were enqueued.

    `before`: how many were enqueued in this database until now. The statistics of the server say how many have ended,
    up to a second late. Counting the rows that wait would take a fifth of the server.
    """
    until, room, counts = time.perf_counter() + seconds, threading.Event(), [0] * PRODUCERS

    def produce(place: int) -> None:
        with connected(url) as own:
            while room.wait() and time.perf_counter() < until:
                run_sync(own, enqueue_jobs(made))
                counts[place] += len(made)

    with ThreadPoolExecutor(PRODUCERS) as threads:
        producing = [threads.submit(produce, place) for place in range(PRODUCERS)]
        while time.perf_counter() < until:
            (room.set if before + sum(counts) - completed(conn) < BACKLOG else room.clear)()
            time.sleep(CHECK_SECONDS)
        room.set()
        for each in producing:
            each.result()
    return sum(counts)


def _waiting(conn: psycopg.Connection[Any]) -> int:
    """Return how many jobs are live."""
    row = conn.execute("SELECT count(*) FROM (SELECT FROM holdfast.job LIMIT 100000) AS live").fetchone()
    assert row is not None
    return int(row[0])
