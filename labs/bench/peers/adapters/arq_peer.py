"""arq on Redis: 100 jobs at a time, results not kept, its default poll of 500 ms."""

from __future__ import annotations

from adapter import asynccontextmanager, main, started
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

MAX_JOBS = 100


async def noop(ctx: dict, at: float, data: str) -> None:  # noqa: ARG001
    started(at)


def prepare(url: str) -> None:
    """Arq needs nothing made."""


@asynccontextmanager
async def produce(url: str):
    pool = await create_pool(RedisSettings.from_dsn(url))

    async def many(jobs: list[dict]) -> None:
        for job in jobs:
            await pool.enqueue_job("noop", **job)

    yield (lambda job: pool.enqueue_job("noop", **job)), many
    await pool.aclose()


async def work(url: str) -> None:
    worker = Worker(
        [noop],
        redis_settings=RedisSettings.from_dsn(url),
        max_jobs=MAX_JOBS,
        keep_result=0,
        log_results=False,
        handle_signals=False,
    )
    await worker.async_run()


main(prepare=prepare, produce=produce, work=work)
