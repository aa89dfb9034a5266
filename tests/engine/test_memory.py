"""Memory stays flat, however many jobs pass through."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast import Fail, Holdfast, Job
from tests.kit.pace import QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

MEBIBYTE = 2**20
ENDS = ("job_completed", "job_failed")


def resident() -> int:
    gc.collect()
    [pages] = Path("/proc/self/statm").read_text().split()[1:2]
    return int(pages) * 4096


@pytest.mark.nightly(daily=["12000"])
@pytest.mark.parametrize("jobs", [12_000, 30_000, pytest.param(1_000_000, marks=pytest.mark.prove)])
async def test_memory_is_flat(app: Holdfast, ledger: Ledger, jobs: int) -> None:
    @app.job("act")
    async def act(job: Job[None], data: str) -> str | Fail:
        if job.id % 10 == 0:
            await asyncio.sleep(0)
        return Fail("now and then") if job.id % 100 == 0 else data

    @app.job("thread")
    def thread(job: Job[None]) -> None: ...

    async with app.worker(queues={"default": 100}, batch_size=500, **QUICK) as worker:
        enqueued = 0

        async def pass_through(count: int) -> None:
            nonlocal enqueued
            for _ in range(count // 1_000):
                ledger.enqueue(*[act.new("x" * 100)] * 990, *[thread.new()] * 10)
                enqueued += 1_000
                await asyncio.sleep(0)
            await until(lambda: sum(worker.counts.get(end, 0) for end in ENDS) == enqueued, 600)

        await pass_through(jobs // 3)
        before = resident()
        for _ in range(4):
            await pass_through(jobs // 6)
        grown = resident() - before
        pipeline = worker.pipelines[0]
        assert pipeline.held == {}
        assert not worker._dispatcher._busy
    assert grown < min(8, jobs / 4_000) * MEBIBYTE, f"{grown / MEBIBYTE:.1f} MiB more after {jobs} jobs"
