"""pgqueuer: asyncpg, batches of 500, log aggregation on demand only."""

from __future__ import annotations

import json
from datetime import timedelta

import asyncpg
import uvloop
from adapter import asynccontextmanager, main, started
from pgqueuer import AsyncpgDriver, PgQueuer, Queries

BATCH = 500


async def prepare(url: str) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


@asynccontextmanager
async def produce(url: str):
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))

    async def one(job: dict) -> None:
        await queries.enqueue("noop", json.dumps(job).encode())

    async def many(jobs: list[dict]) -> None:
        bodies = [json.dumps(job).encode() for job in jobs]
        await queries.enqueue(["noop"] * len(jobs), bodies, [0] * len(jobs))

    yield one, many
    await connection.close()


async def work(url: str) -> None:
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    @queuer.entrypoint("noop")
    async def noop(job) -> None:
        started(json.loads(job.payload)["at"])

    await queuer.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=30), log_aggregation_interval=timedelta(0))


uvloop.install()
main(prepare=prepare, produce=produce, work=work)
