"""`holdfast worker --processes 2` against one process, both by the real command.

The jobs become due at one moment, when every process has said that it lives; PostgreSQL's clock says when the last
one was finished.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.figure import Figure, Section, table
from bench.ground import checkpoint, connected, ground, progress
from bench.load import load_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

JOBS = 100_000
ROUNDS = 5
LEAST = 1.3
LONGEST_SECONDS = 120.0


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
    with _workers(url, processes):
        _wait(conn, "SELECT count(*) FROM holdfast.worker WHERE stopped_at IS NULL", processes)
        load_jobs(conn, jobs, due="now() + interval '3 seconds'")
        checkpoint(conn)
        _wait(conn, "SELECT count(*) FROM holdfast.job_history", jobs)
    row = conn.execute(
        "SELECT extract(epoch FROM max(finished_at) - min(available_at)) FROM holdfast.job_history"
    ).fetchone()
    assert row is not None
    return jobs / float(row[0])


@contextmanager
def _workers(url: str, processes: int) -> Iterator[None]:
    settings = {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_BATCH_SIZE": "500", "HOLDFAST_CONCURRENCY": "100"}
    command = [sys.executable, "-m", "holdfast", "worker", "bench.application:app", "--log-level", "warning"]
    worker = subprocess.Popen(
        [*command, "--processes", str(processes)],
        env=os.environ | settings,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(60)


def _wait(conn: psycopg.Connection[Any], query: str, value: int) -> None:
    until = time.monotonic() + LONGEST_SECONDS
    while True:
        row = conn.execute(query.encode()).fetchone()
        assert row is not None
        if row[0] >= value:
            return
        assert time.monotonic() < until, f"{row[0]} of {value}: {query}"
        time.sleep(0.1)
