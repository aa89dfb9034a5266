"""awa: the Rust engine with a Python handler, 1,024 workers, claims of 512."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from adapter import asynccontextmanager, main, started
from awa import AsyncClient

WORKERS = 1_024
CLAIM = 512


@dataclass
class Noop:
    at: float
    data: str


async def prepare(url: str) -> None:
    client = AsyncClient(url)
    await client.migrate()
    await client.install_queue_storage()
    await client.close()


@asynccontextmanager
async def produce(url: str):
    client = AsyncClient(url)
    yield (
        lambda job: client.insert(Noop(**job), queue="default"),
        lambda jobs: client.enqueue_many_copy([Noop(**job) for job in jobs], queue="default"),
    )
    await client.close()


async def work(url: str) -> None:
    client = AsyncClient(url, max_connections=20)

    @client.task(Noop, queue="default")
    async def noop(job) -> None:
        started(job.args.at)

    await client.start([{"name": "default", "max_workers": WORKERS, "claim_batch_size": CLAIM}], poll_interval_ms=50)
    await asyncio.Event().wait()


main(prepare=prepare, produce=produce, work=work)
