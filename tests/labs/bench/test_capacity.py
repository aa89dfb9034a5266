"""The computed costs of `holdfast capacity` against a worker that runs jobs of three sizes, as far as they are counts.

`python -m labs.bench capacity` compares the ceilings.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, Job
from holdfast._capacity.costs import measured
from holdfast._model.new_job import Envelope, NewJob
from labs.bench.capacity import WITHIN
from labs.bench.kept import bytes_kept
from labs.bench.load import KIND
from labs.bench.steps import payload_of
from tests.labs.bench.written import written

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

pytestmark = pytest.mark.nightly

SIZES = (100, 1_000, 10_000)
JOBS = 600
BATCH = 100
LONGEST_SECONDS = 60.0


async def drain(app: Holdfast) -> None:
    until = time.monotonic() + LONGEST_SECONDS
    async with app.worker(queues={"default": 100}, batch_size=BATCH) as worker:
        while worker.counts.get("job_completed", 0) < JOBS:
            assert time.monotonic() < until
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("size", SIZES)
def test_the_wal_of_a_job(database: str, connect: Callable[..., psycopg.Connection[Any]], size: int) -> None:
    app, conn, costs = Holdfast(database), connect(), measured()

    @app.job(KIND)
    async def noop(job: Job[None], data: str) -> None:
        pass

    jobs = [NewJob[object](Envelope(KIND), payload_of(size))] * BATCH
    with written(conn) as found:
        for _ in range(0, JOBS, BATCH):
            app.sync.enqueue_many(conn, jobs)
        asyncio.run(drain(app))
    computed = sum(costs.item(step, size, BATCH).wal for step in ("enqueue", "claim", "finish"))
    assert found.per(JOBS).wal == pytest.approx(computed, rel=WITHIN)


@pytest.mark.parametrize("size", SIZES)
def test_the_disk_of_a_job_and_an_event(connect: Callable[..., psycopg.Connection[Any]], size: int) -> None:
    found, costs = bytes_kept(connect(), size, 0.2), measured()
    for name in ("completed", "event"):
        assert found[name] == pytest.approx(costs.bytes_kept(name, size), rel=WITHIN), name
