"""Under full load with a million jobs of lower priority waiting: from the commit of an urgent job to its first line."""

from __future__ import annotations

import asyncio
import time
from statistics import median, quantiles
from typing import TYPE_CHECKING

import psycopg

from holdfast import Holdfast, Job
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import connected, ground, progress
from labs.bench.load import KIND, load_jobs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast._engine.worker import Worker

WAITING = 1_000_000
JOBS = 300
PAUSE = 0.05
P99_MOST = 50.0
LONGEST_SECONDS = 10.0


def measure(scale: float) -> Section:
    waiting, jobs = max(100_000, round(WAITING * scale)), max(50, round(JOBS * scale))
    figures, rows = [], []
    for name, handler in (("handlers of 5 ms", _short), ("handlers that do nothing", _nothing)):
        with ground(autovacuum="on") as base, base.database() as url:
            with connected(url) as conn:
                load_jobs(conn, waiting, priorities=(9,))
            progress(f"urgent: {jobs} jobs, {name}")
            times, rate = asyncio.run(_times(url, jobs, handler))
        p99 = quantiles(times, n=100)[-1] * 1000
        figures.append(Figure(f"99th of a hundred, {name}", p99, limit=P99_MOST, unit=" ms"))
        rows.append((name, f"{median(times) * 1000:.1f} ms", f"{p99:.1f} ms", f"{rate:,.0f}"))
    return Section(figures, [table(("", "median", "99th of a hundred", "other jobs a second"), rows)])


async def _nothing() -> None:
    pass


async def _short() -> None:
    await asyncio.sleep(0.005)


async def _begun(worker: Worker) -> None:
    for _ in range(1000):
        if worker.counts.get("job_completed"):
            return
        await asyncio.sleep(0.01)


async def _times(url: str, jobs: int, handler: Callable[[], Awaitable[None]]) -> tuple[list[float], float]:
    app = Holdfast(url)
    started: asyncio.Queue[float] = asyncio.Queue()

    @app.job(KIND)
    async def bulk(job: Job[None], data: str) -> None:  # noqa: ARG001 - a handler has them
        await handler()

    @app.job("bench.urgent", priority=0)
    async def urgent(job: Job[None]) -> None:  # noqa: ARG001 - a handler has it
        started.put_nowait(time.perf_counter())

    times: list[float] = []
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as producer,
        app.worker(queues={"default": 100}, batch_size=500) as worker,
    ):
        await _begun(worker)
        begun, before = time.perf_counter(), worker.counts["job_completed"]
        for _ in range(jobs):
            await asyncio.sleep(PAUSE)
            await app.enqueue(producer, urgent.new())
            committed = time.perf_counter()
            async with asyncio.timeout(LONGEST_SECONDS):
                # It may start before the producer's commit returns.
                times.append(max(0.0, await started.get() - committed))
        rate = (worker.counts["job_completed"] - before) / (time.perf_counter() - begun)
    return times, rate
