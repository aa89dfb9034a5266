"""Holdfast: a worker with a slot for each story that runs at once, everything else as it comes."""

from __future__ import annotations

import asyncio

import psycopg
from stories import RESULT, STEPS, arguments, main

from holdfast import Holdfast, Job, Step
from holdfast._store.schema import migrate

url, at_once, tasks = arguments()
app = Holdfast(url)
ended: asyncio.Queue[None] = asyncio.Queue()


async def one(n: int) -> dict[str, object]:  # noqa: ARG001
    return RESULT


@app.job("ten")
async def ten(job: Job[None], n: int) -> str:  # noqa: ARG001
    for step in range(STEPS):
        await job.step(Step("step", key=step), one, step)
    ended.put_nowait(None)
    return "done"


@app.job("none")
async def none(n: int) -> str:  # noqa: ARG001
    ended.put_nowait(None)
    return "done"


async def work(kind: str, count: int) -> None:
    async with await psycopg.AsyncConnection.connect(url) as conn:
        await app.enqueue_many(conn, [app.kinds[kind].new(n) for n in range(count)])
    for _ in range(count):
        await ended.get()


with psycopg.connect(url, autocommit=True) as conn:
    migrate(conn)
with asyncio.Runner() as runner:
    worker = app.worker(queues={"default": at_once})
    runner.run(worker.__aenter__())
    main(lambda kind, count: runner.run(work(kind, count)), tasks)
    runner.run(worker.__aexit__(None, None, None))
