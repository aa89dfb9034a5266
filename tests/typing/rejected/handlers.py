"""Mistakes in how a handler completes its job, or takes a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast import Continue, Holdfast, Item, Job

if TYPE_CHECKING:
    import psycopg
    from psycopg.rows import TupleRow

app = Holdfast()


class State:
    conn: psycopg.AsyncConnection[TupleRow]
    sync: psycopg.Connection[TupleRow]


@dataclass
class Letter:
    to: str


@app.job("ship")
async def ship(job: Job[State], order_id: int) -> str:
    return await job.complete(job.state.conn, 7)  # rejected


@app.job("forgets")
async def forgets(job: Job[State]) -> str:
    return job.complete(job.state.conn, "never awaited")  # rejected


@app.job("mixes")
async def mixes(job: Job[State]) -> str:
    return await job.complete(job.state.sync, "a sync connection")  # rejected


@app.job("mixes.too")
def mixes_too(job: Job[State]) -> str:
    return job.sync.complete(job.state.conn, "an async connection")  # rejected


@app.job("awaits")
async def awaits(job: Job[State]) -> str:
    return await job.sync.complete(job.state.sync, "not async")  # rejected


@app.job("count")
async def count(job: Job[State]) -> int:
    return 1


@app.job("wrong.next")
async def wrong_next(job: Job[State]) -> str | Continue[str]:
    return Continue(count.new())  # rejected


@app.batch("mail.send")
async def send(items: list[Item[Letter]]) -> None: ...


send.new("a@b.c")  # rejected


@app.batch("mail.single")  # rejected
async def single(job: Job[State], to: str) -> None: ...
