"""The verbs on chains and jobs: results keep their type from the handler that ends a chain to the client."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, assert_type

from django.db import connection

from holdfast import (
    Chain,
    ChainLine,
    Continue,
    Fail,
    Handle,
    Holdfast,
    Item,
    Job,
    JobInfo,
    JobList,
    NewJob,
    Progress,
    RetryResult,
    Running,
    ScheduleLine,
)

if TYPE_CHECKING:
    import asyncpg
    import psycopg
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

Completion = Literal["completed", "already_ended", "not_found"]


@dataclass
class Amount:
    cents: int


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


@app.batch("total")
async def total(items: list[Item[Amount]]) -> list[int]:
    return [item.args.cents for item in items]


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
    page = await app.list_jobs(conn, kind="pay", status="failed", queue="a", order_key="b", tag="c", before=7, limit=10)
    assert_type(page, JobList)
    assert_type((page.jobs[0], page.next, page.jobs[0].arguments), tuple[JobInfo[object], int | None, object])
    assert_type(await app.list_chains(session, kind="pay", status="failed", before=7, limit=10), list[ChainLine])
    assert_type(await app.delete_chains(conn, [handle, 7], cascade=True), list[int])


def looking_sync(session: Session, handle: Handle[str]) -> None:
    assert_type(app.sync.get_chain(connection, handle), Chain[str] | None)
    assert_type(app.sync.get_chain(session, 7), Chain[object] | None)
    assert_type(app.sync.list_jobs(session), JobList)
    assert_type(app.sync.list_chains(session), list[ChainLine])
    assert_type(app.sync.delete_chains(connection, {handle.chain_id}), list[int])


async def one_job(conn: psycopg.AsyncConnection[Any], session: AsyncSession, handle: Handle[str]) -> None:
    assert_type(await app.get_job(conn, handle), JobInfo[str] | None)
    assert_type(await app.get_job(session, 7), JobInfo[object] | None)
    info = await app.get_job(conn, count.handle(7))
    if info is not None and info.status == "completed":
        assert_type(info.result, int)
        assert_type(info.finished_at, datetime | None)
        assert_type(info.progress, Progress | None)
    retried = await app.retry(conn, handle, again=True)
    assert_type(retried, RetryResult[str])
    if retried.status == "retried" and retried.handle is not None:
        assert_type(await app.wait(retried.handle), str)
    assert_type(await app.retry(conn, 7), RetryResult[object])
    assert_type(await app.cancel(conn, handle), Literal["cancelled", "requested", "not_found"])
    moved = await app.reschedule(conn, handle, delay=timedelta(hours=1))
    assert_type(moved, Literal["rescheduled", "processing", "blocked", "not_found"])
    await app.reschedule(conn, 7, at=datetime.now(UTC))
    await app.reschedule(conn, 7, delay=1.5)
    assert_type(await app.pause_queue(session, "mail"), bool)
    assert_type(await app.trigger_schedule(session, "nightly"), bool)
    assert_type(await app.list_schedules(session), list[ScheduleLine])
    assert_type([line.next_at for line in await app.list_schedules(session)], list[datetime | None])
    assert_type(await app.list_ticks(session), list[Running])
    assert_type(await app.migrate(), list[str])


def one_job_sync(session: Session, handle: Handle[str]) -> None:
    assert_type(app.sync.get_job(connection, handle), JobInfo[str] | None)
    assert_type(app.sync.get_job(session, 7), JobInfo[object] | None)
    assert_type(app.sync.retry(session, handle), RetryResult[str])
    assert_type(app.sync.resume_queue(connection, "mail"), bool)
    assert_type(app.sync.list_schedules(session), list[ScheduleLine])
    assert_type(app.sync.list_ticks(session), list[Running])
    assert_type(app.sync.migrate(url="postgresql://"), list[str])


async def handles() -> None:
    assert_type(ship.handle(7), Handle[str])
    assert_type(pay.handle(7), Handle[str])
    assert_type(check.handle(7), Handle[str])
    assert_type(count.handle(7), Handle[int])
    assert_type(total.handle(7), Handle[int])
    assert_type(app.declare("elsewhere", dict[str, int]).handle(7), Handle[object])
    assert_type(await app.wait(ship.handle(7)), str)
    assert_type(app.sync.wait(count.handle(7)), int)


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


async def completing_many(conn: psycopg.AsyncConnection[Any], sync: Session, jobs: list[Job[None]]) -> None:
    assert_type(await app.complete_many(conn, dict.fromkeys(jobs, "sent")), list[Job[Any]])
    assert_type(app.sync.complete_many(sync, {jobs[0]: Continue(ship.new(1)), jobs[1]: 7}), list[Job[Any]])


async def fanning(conn: psycopg.AsyncConnection[Any], sync: psycopg.Connection[Any], jobs: list[NewJob[str]]) -> None:
    assert_type(await app.enqueue_group(conn, [ship.new(1), count.new(1)], then=check.new(1)), Handle[str])
    assert_type(app.sync.enqueue_group(sync, jobs, then=count.new(1).options(if_blocker_fails="run")), Handle[int])
