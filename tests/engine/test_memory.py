"""Memory stays flat, however many jobs pass through."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast import Fail, Holdfast, Job
from tests.engine.pace import QUICK
from tests.engine.waiting import until

if TYPE_CHECKING:
    from tests.engine.ledger import Ledger

MEBIBYTE = 2**20


def resident() -> int:
    gc.collect()
    [pages] = Path("/proc/self/statm").read_text().split()[1:2]
    return int(pages) * 4096


@pytest.mark.parametrize(
    "jobs", [30_000, pytest.param(100_000, marks=pytest.mark.prove), pytest.param(1_000_000, marks=pytest.mark.prove)]
)
async def test_memory_is_flat(app: Holdfast, ledger: Ledger, jobs: int) -> None:
    @app.job("act")
    async def act(job: Job[None], data: str) -> str | Fail:
        if job.id % 10 == 0:
            await asyncio.sleep(0)
        return Fail("now and then") if job.id % 100 == 0 else data

    @app.job("thread")
    def thread(job: Job[None]) -> None: ...

    def enqueue(count: int) -> None:
        done = 0
        while done < count:
            ledger.enqueue(*[act.new("x" * 100)] * 990, *[thread.new()] * 10)
            done += 1_000

    async with app.worker(queues={"default": 100}, batch_size=500, **QUICK) as worker:

        def ended() -> int:
            return worker.counts.get("job_completed", 0) + worker.counts.get("job_failed", 0)

        warm = jobs // 3
        enqueue(warm)
        await until(lambda: ended() == warm, 600)
        before = resident()
        for part in range(1, 5):
            enqueue(jobs // 6)
            await until(lambda: ended() == warm + part * (jobs // 6), 600)  # noqa: B023 - awaited in the same turn
        grown = resident() - before
        pipeline = worker.pipelines[0]
        assert pipeline.held == {}
        assert worker._dispatcher._tasks == set()
    assert grown < 8 * MEBIBYTE, f"{grown / MEBIBYTE:.1f} MiB more after {jobs} jobs"
