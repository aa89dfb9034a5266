"""A worker in one process, everything switched on, against a bare loop over the same claim and finish."""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast, Job
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import checkpoint, connected, ground, progress
from labs.bench.load import KIND, PAYLOAD, load_jobs
from labs.bench.plain import Plain
from labs.bench.worker import Worker

if TYPE_CHECKING:
    import psycopg

JOBS = 50_000
ROUNDS = 5
LEAST = 0.9
LONGEST_SECONDS = 120.0


def measure(scale: float) -> Section:
    jobs = max(5_000, round(JOBS * scale))
    rates: dict[str, list[float]] = {"bare": [], "plain pair": [], "worker": []}
    with ground(autovacuum="on") as base, base.database() as url, connected(url) as conn:
        bare, plain = Worker(conn), Plain(conn)
        plain.create()
        for turn in range(max(2, round(ROUNDS * scale))):
            progress(f"drain: round {turn + 1}")
            load_jobs(conn, jobs, into="plain.job")
            rates["plain pair"].append(jobs / _timed(conn, lambda: _drain_plain(plain, jobs)))
            load_jobs(conn, jobs)
            rates["bare"].append(jobs / _timed(conn, lambda: _drain_bare(bare, jobs)))
            load_jobs(conn, jobs)
            rates["worker"].append(asyncio.run(drain_with_worker(url, jobs, queues={"default": 100}, batch_size=500)))
            checkpoint(conn)
    middle = {name: median(values) for name, values in rates.items()}
    figures = [
        Figure("worker, against the bare loop", middle["worker"] / middle["bare"], least=LEAST),
        Figure("worker, against the plainest pair", middle["worker"] / middle["plain pair"]),
    ]
    rows = [(name, f"{rate:,.0f}") for name, rate in middle.items()]
    return Section(figures, [table(("", "jobs a second"), rows)])


def _timed(conn: psycopg.Connection[Any], run: Any) -> float:
    checkpoint(conn)
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _drain_bare(worker: Worker, jobs: int) -> None:
    assert worker.drain() == jobs


def _drain_plain(plain: Plain, jobs: int) -> None:
    done = 0
    while rows := plain.claim(500):
        plain.finish(rows)
        done += len(rows)
    assert done == jobs


async def drain_with_worker(url: str, jobs: int, *, queues: dict[str, int] | None = None, **settings: Any) -> float:
    """Return the rate from the start of the worker to the last ending written."""
    app = Holdfast(url)

    @app.job(KIND)
    async def noop(job: Job[None], data: str) -> None:
        pass

    noop.arguments(PAYLOAD)
    async with app.worker(queues=queues, **settings) as worker:
        begun = time.perf_counter()
        before = worker.counts.get("job_completed", 0)
        while worker.counts.get("job_completed", 0) < jobs:
            assert time.perf_counter() - begun < LONGEST_SECONDS
            await asyncio.sleep(0.005)
        return (jobs - before) / (time.perf_counter() - begun)
