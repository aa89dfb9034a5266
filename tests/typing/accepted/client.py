"""The verbs on chains: results keep their type from the handler that ends a chain to the client that waits for it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, assert_type

from django.db import connection

from holdfast import Chain, ChainLine, Continue, Fail, Handle, Holdfast, Job, NewJob

if TYPE_CHECKING:
    import asyncpg
    import psycopg
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

Completion = Literal["completed", "already_ended", "not_found"]

app = Holdfast()


@app.job("ship")
async def ship(job: Job[None], order: int) -> str:
    return f"shipped {order}"


@app.job("pay")
async def pay(job: Job[None], order: int) -> Continue[str]:
    return Continue(ship.new(order))


@app.job("check")
def check(job: Job[None], order: int) -> str | Continue[str] | Fail:
    return Continue(pay.new(order)) if order else Fail("no order")


@app.job("count")
async def count(job: Job[None], left: int) -> int | Continue[int]:
    return Continue(count.new(left - 1).options(delay=timedelta(seconds=1))) if left else job.attempt


@app.job("forget")
async def forget(job: Job[None]) -> None: ...


async def waiting(conn: psycopg.AsyncConnection[Any]) -> None:
    line = await app.enqueue(conn, pay.new(1))
    branch = await app.enqueue(conn, check.new(1))
    loop = await app.enqueue(conn, count.new(1))
    assert_type(line, Handle[str])
    assert_type(await app.wait(line), str)
    assert_type(await app.wait(branch, timeout=300), str)
    assert_type(await app.wait(loop, url="postgresql://"), int)
    repr(await app.wait(line))
    assert_type(await app.wait(7), object)
    await app.wait(await app.enqueue(conn, forget.new()))
    assert_type(app.sync.wait(line, timeout=timedelta(minutes=5)), str)
    assert_type(app.sync.wait(7), object)


async def looking(conn: asyncpg.Connection[Any], session: AsyncSession, handle: Handle[str]) -> None:
    chain = await app.get_chain(conn, handle)
    assert_type(chain, Chain[str] | None)
    if chain is not None:
        assert_type((chain.id, chain.status, chain.result), tuple[int, str, str])
        assert_type([job.kind for job in chain.jobs], list[str])
    assert_type(await app.get_chain(session, 7), Chain[object] | None)
    assert_type(await app.list_chains(session, kind="pay", status="failed", before=7, limit=10), list[ChainLine])
    assert_type(await app.delete_chains(conn, [handle, 7], cascade=True), list[int])


def looking_sync(session: Session, handle: Handle[str]) -> None:
    assert_type(app.sync.get_chain(connection, handle), Chain[str] | None)
    assert_type(app.sync.get_chain(session, 7), Chain[object] | None)
    assert_type(app.sync.list_chains(session), list[ChainLine])
    assert_type(app.sync.delete_chains(connection, {handle.chain_id}), list[int])


async def completing(conn: psycopg.AsyncConnection[Any], handle: Handle[str], nothing: Handle[None]) -> None:
    assert_type(await app.complete_chain(conn, handle, "approved"), Completion)
    assert_type(await app.complete_chain(conn, handle, Continue(check.new(1))), Completion)
    await app.complete_chain(conn, nothing, None)
    await app.complete_chain(conn, 7, {"any": "thing"})
    await app.complete_chain(conn, 7, Continue(count.new(1)))


def completing_sync(session: Session, handle: Handle[str]) -> None:
    assert_type(app.sync.complete_chain(session, handle, "approved"), Completion)
    assert_type(app.sync.complete_chain(connection, handle, Continue(ship.new(1))), Completion)
    app.sync.complete_chain(session, 7, 7)


async def fanning(conn: psycopg.AsyncConnection[Any], sync: psycopg.Connection[Any], jobs: list[NewJob[str]]) -> None:
    assert_type(await app.enqueue_group(conn, [ship.new(1), count.new(1)], then=check.new(1)), Handle[str])
    assert_type(app.sync.enqueue_group(sync, jobs, then=count.new(1).options(if_blocker_fails="run")), Handle[int])
