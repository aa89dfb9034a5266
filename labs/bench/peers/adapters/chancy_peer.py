"""chancy: the asyncio executor with 1,000 jobs at a time, logging off."""

from __future__ import annotations

import logging

from adapter import RATE, asynccontextmanager, main, started
from chancy import Chancy, Queue, Worker, job

CONCURRENCY = 1_000
QUIET = logging.getLogger("quiet")
QUIET.setLevel(logging.CRITICAL)


@job(queue="default")
async def noop(*, at: float, data: str) -> None:  # noqa: ARG001
    started(at)


async def prepare(url: str) -> None:
    async with Chancy(url, log=QUIET) as app:
        await app.migrate()
        queue = Queue(
            "default",
            concurrency=CONCURRENCY,
            executor=Chancy.Executor.Async,
            polling_interval=1,
            eager_polling=True,
            rate_limit=RATE,
            rate_limit_window=1 if RATE else None,
        )
        await app.declare(queue, upsert=True)


@asynccontextmanager
async def produce(url: str):
    async with Chancy(url, log=QUIET) as app:

        async def many(jobs: list[dict]) -> None:
            async for _ in app.push_many([noop.job.with_kwargs(**kwargs) for kwargs in jobs], batch_size=1_000):
                pass

        yield (lambda kwargs: app.push(noop.job.with_kwargs(**kwargs))), many


async def work(url: str) -> None:
    async with Chancy(url, log=QUIET) as app, Worker(app, register_signal_handlers=False) as worker:
        await worker.wait_for_shutdown()


main(prepare=prepare, produce=produce, work=work)
