"""Holdfast: 100 slots, claims of 500, everything else as it comes."""

from __future__ import annotations

import asyncio

import psycopg
from adapter import RATE, asynccontextmanager, main, started

from holdfast import Holdfast, Job, Limit

app = Holdfast()


@app.job("bench.noop", limits=[Limit(rate=f"{RATE}/s")] if RATE else ())
async def noop(job: Job[None], at: float = 0, data: str = "") -> None:  # noqa: ARG001
    started(at)


def prepare(url: str) -> None:
    from holdfast._store.schema import migrate

    with psycopg.connect(url, autocommit=True) as conn:
        migrate(conn)


@asynccontextmanager
async def produce(url: str):
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        yield (
            lambda job: app.enqueue(conn, noop.new(**job)),
            lambda jobs: app.enqueue_many(conn, [noop.new(**job) for job in jobs]),
        )


async def work(url: str) -> None:
    app.url = url
    async with app.worker(queues={"default": 100}, batch_size=500):
        await asyncio.Event().wait()


main(prepare=prepare, produce=produce, work=work)
