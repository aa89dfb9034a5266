"""`holdfast worker --processes 2` against one process, both by the real command.

The jobs become due at one moment, when every process has said that it lives; PostgreSQL's clock says when the last
one was finished.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from labs.bench.figure import Figure, Section, table
from labs.bench.fleet import kept, live, supervised, wait_until
from labs.bench.ground import checkpoint, connected, ground, progress
from labs.bench.load import load_jobs

if TYPE_CHECKING:
    import psycopg

JOBS = 100_000
ROUNDS = 5
LEAST = 1.3
WORKER = {"batch_size": 500, "concurrency": 100}


def measure(scale: float) -> Section:
    jobs = max(10_000, round(JOBS * scale))
    rates: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(max(2, round(ROUNDS * scale))):
        for processes, measured in rates.items():
            progress(f"processes: round {turn + 1}, {processes}")
            with ground(autovacuum="on") as base, base.database() as url, connected(url) as conn:
                measured.append(_rate(conn, url, jobs, processes))
    middle = {processes: median(values) for processes, values in rates.items()}
    figures = [Figure("two processes, against one", middle[2] / middle[1], least=LEAST)]
    rows = [(str(processes), f"{rate:,.0f}") for processes, rate in middle.items()]
    return Section(figures, [table(("processes", "jobs a second"), rows)])


def _rate(conn: psycopg.Connection[Any], url: str, jobs: int, processes: int) -> float:
    with supervised([url], processes, **WORKER):
        wait_until(lambda: live(conn) >= processes, "the workers start")
        load_jobs(conn, jobs, due="now() + interval '3 seconds'")
        checkpoint(conn)
        wait_until(lambda: kept(conn) >= jobs, "the jobs are done", every=0.1)
    row = conn.execute(
        "SELECT extract(epoch FROM max(finished_at) - min(available_at)) FROM holdfast.job_history"
    ).fetchone()
    assert row is not None
    return jobs / float(row[0])
