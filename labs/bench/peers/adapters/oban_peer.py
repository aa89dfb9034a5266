"""oban (Python): one queue with a limit of 100."""

from __future__ import annotations

import asyncio

from adapter import asynccontextmanager, main, started
from oban import Oban, worker
from oban.schema import install

LIMIT = 100


@worker(queue="default")
class Noop:
    async def process(self, job) -> None:
        started(job.args["at"])


async def prepare(url: str) -> None:
    async with await Oban.create_pool(url) as pool:
        await install(pool)


@asynccontextmanager
async def produce(url: str):
    async with await Oban.create_pool(url) as pool, Oban(pool=pool) as oban:
        yield (
            lambda job: oban.enqueue(Noop.new(job)),
            lambda jobs: oban.enqueue_many([Noop.new(job) for job in jobs]),
        )


async def work(url: str) -> None:
    async with await Oban.create_pool(url) as pool, Oban(pool=pool, queues={"default": LIMIT}):
        await asyncio.Event().wait()


main(prepare=prepare, produce=produce, work=work)
