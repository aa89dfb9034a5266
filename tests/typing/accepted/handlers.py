"""Completing with one's own writes, blockers' results, batches, progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_type

from holdfast import Blocker, Continue, Fail, Holdfast, Item, Job, NewJob

if TYPE_CHECKING:
    import psycopg
    from psycopg.rows import TupleRow
    from sqlalchemy.orm import Session

app = Holdfast()


class State:
    conn: psycopg.AsyncConnection[TupleRow]
    sync: psycopg.Connection[TupleRow]
    session: Session


@dataclass
class Letter:
    to: str


@app.job("ship")
async def ship(job: Job[State], order_id: int) -> str:
    job.progress(0.5, "packed")
    return await job.complete(job.state.conn, "shipped")


@app.job("charge")
async def charge(job: Job[State], order_id: int) -> str | Continue[str]:
    if order_id:
        return await job.complete(job.state.conn, Continue(ship.new(order_id)))
    return await job.complete(job.state.conn, "free")


@app.job("bill")
def bill(job: Job[State]) -> int:
    assert_type(job.blockers, tuple[Blocker, ...])
    [first, second] = job.blockers
    assert_type(ship.result(first), str)
    assert_type(charge.result(second), str)
    job.sync.complete(job.state.session, 7)
    return job.sync.complete(job.state.sync, 7)


@app.batch("mail.send", size=50)
async def send(items: list[Item[Letter]]) -> list[str | Fail]:
    return [item.args.to if item.job.attempt == 1 else Fail("no") for item in items]


@app.batch("mail.count")
def count(items: list[Item[Letter]]) -> None:
    assert_type(items[0].args.to, str)


assert_type(ship.new(1), NewJob[str])
assert_type(charge.new(1), NewJob[str])
assert_type(send.new(Letter("a@b.c")), NewJob[str])
assert_type(count.new(Letter("a@b.c")), NewJob[None])
