"""absurd: the asyncio worker, claims of 100, its default poll of 250 ms."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
from absurd_sdk import AsyncAbsurd
from adapter import asynccontextmanager, main, started

QUEUE = "default"
CONCURRENCY = 100


def prepare(url: str) -> None:
    for command in (["init"], ["create-queue", QUEUE]):
        control = Path(sys.executable).with_name("absurdctl")
        subprocess.run([control, *command, "--database", url], check=True, stdout=sys.stderr)


@asynccontextmanager
async def produce(url: str):
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    app = AsyncAbsurd(connection, queue_name=QUEUE)

    async def one(job: dict) -> None:
        await app.spawn("noop", job, queue=QUEUE)

    async def many(jobs: list[dict]) -> None:
        async with connection.transaction():
            for job in jobs:
                await app.spawn("noop", job, queue=QUEUE)

    yield one, many
    await connection.close()


async def work(url: str) -> None:
    app = AsyncAbsurd(url, queue_name=QUEUE)

    @app.register_task("noop")
    async def noop(params, ctx) -> None:  # noqa: ARG001
        started(params["at"])

    await app.start_worker(concurrency=CONCURRENCY)


main(prepare=prepare, produce=produce, work=work)
