"""From a commit to the first line of the handler, with an idle worker: against a bare loop that listens and claims."""

from __future__ import annotations

import asyncio
import time
from statistics import median, quantiles
from typing import Any

import psycopg

from holdfast import Holdfast, Job
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import ground, progress
from labs.bench.plain import Plain

JOBS = 400
PAUSE = 0.06
MEDIAN_MOST = 1.5
P99_MOST = 2.0
LONGEST_SECONDS = 10.0


def measure(scale: float) -> Section:
    jobs = max(50, round(JOBS * scale))
    with ground() as base, base.database() as url:
        progress(f"pickup: {jobs} jobs each")
        ours, bare = asyncio.run(_by_turns(url, jobs))
    figures = [
        Figure("median, against a bare loop", median(ours) / median(bare), limit=MEDIAN_MOST),
        Figure("99th of a hundred, against a bare loop", _p99(ours) / _p99(bare), limit=P99_MOST),
    ]
    rows = [
        (name, *(f"{value * 1000:.2f} ms" for value in (median(times), _p99(times))))
        for name, times in (("worker", ours), ("bare loop", bare))
    ]
    return Section(figures, [table(("", "median", "99th of a hundred"), rows)])


def _p99(times: list[float]) -> float:
    return quantiles(times, n=100)[-1]


async def _by_turns(url: str, jobs: int) -> tuple[list[float], list[float]]:
    app = Holdfast(url)
    started: asyncio.Queue[float] = asyncio.Queue()

    @app.job("bench.pickup")
    async def pickup(job: Job[None]) -> None:  # noqa: ARG001 - a handler has it
        started.put_nowait(time.perf_counter())

    ours: list[float] = []
    bare: list[float] = []
    with psycopg.connect(url, autocommit=True) as conn:
        Plain(conn).create()
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as producer,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as listener,
        await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=0) as claimer,
        app.worker(queues={"default": 10}),
    ):
        await listener.execute("LISTEN plain")
        for _ in range(jobs):
            await asyncio.sleep(PAUSE)
            # The first line of a handler is what counts, so the time of the commit is taken when it is sent.
            begun = time.perf_counter()
            await app.enqueue(producer, pickup.new())
            async with asyncio.timeout(LONGEST_SECONDS):
                ours.append(await started.get() - begun)
            await asyncio.sleep(PAUSE)
            waiting = asyncio.create_task(_bare_pickup(listener, claimer))
            await asyncio.sleep(0)
            begun = time.perf_counter()
            await producer.execute(
                "WITH made AS (INSERT INTO plain.job (created_at, available_at, queue, kind, payload)"
                " VALUES (now(), now(), 'default', 'bench.noop', '{}') RETURNING id)"
                " SELECT pg_notify('plain', 'default') FROM made"
            )
            async with asyncio.timeout(LONGEST_SECONDS):
                bare.append(await waiting - begun)
    return ours, bare


async def _bare_pickup(listener: psycopg.AsyncConnection[Any], claimer: psycopg.AsyncConnection[Any]) -> float:
    async for _ in listener.notifies(stop_after=1):
        pass
    cursor = await claimer.execute(
        "UPDATE plain.job SET status = 'processing', attempt = attempt + 1, locked_by = 1, lock_token = 1,"
        " locked_until = now() + interval '60 seconds' WHERE id = (SELECT id FROM plain.job WHERE status = 'pending'"
        " AND queue = 'default' AND kind = 'bench.noop' AND priority = 5 AND available_at <= now()"
        " ORDER BY available_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id, payload"
    )
    assert await cursor.fetchone() is not None
    return time.perf_counter()
