"""Every marked line is an error to both checkers, and no other line is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg

from holdfast import Chain, Continue, Handle, Holdfast, Job

app = Holdfast()


@app.job("ship")
async def ship(job: Job[None], order: int) -> str:
    return f"shipped {order}"


@app.job("pay")
async def pay(job: Job[None], order: int) -> str | Continue[str]:
    return Continue(ship.new(order))


@app.job("count")
async def count(job: Job[None]) -> int:
    return 1


async def waiting(conn: psycopg.AsyncConnection[Any], handle: Handle[str]) -> None:
    app.wait(handle)  # rejected: forgotten await
    text: str = app.wait(handle)  # rejected: forgotten await
    number: int = await app.wait(handle)  # rejected: the chain ends with a str
    through: int = await app.wait(await app.enqueue(conn, pay.new(1)))  # rejected: so does this one
    await app.wait(handle, timeout="30")  # rejected: neither seconds nor a timedelta
    await app.wait(conn, handle)  # rejected: it waits on a connection of its own
    await app.wait(ship.new(1))  # rejected: nobody has enqueued it
    await app.sync.wait(handle)  # rejected: not async
    print(text, number, through)


async def completing(conn: psycopg.AsyncConnection[Any], sync: psycopg.Connection[Any], handle: Handle[str]) -> None:
    app.complete_chain(conn, handle, "approved")  # rejected: forgotten await
    await app.complete_chain(conn, handle, 7)  # rejected: the chain ends with a str
    await app.complete_chain(conn, handle, None)  # rejected: the chain ends with a str
    await app.complete_chain(conn, handle, Continue(count.new()))  # rejected: it would end with an int
    await app.complete_chain(conn, handle)  # rejected: no result
    await app.complete_chain(conn, handle, ship.new(1))  # rejected: a job is no Continue
    await app.complete_chain(sync, handle, "approved")  # rejected: a sync connection
    app.sync.complete_chain(sync, handle, 7)  # rejected: the chain ends with a str
    app.sync.complete_chain(conn, handle, "approved")  # rejected: an async connection


async def looking(conn: psycopg.AsyncConnection[Any], sync: psycopg.Connection[Any], handle: Handle[str]) -> None:
    app.get_chain(conn, handle)  # rejected: forgotten await
    app.delete_chains(conn, [handle])  # rejected: forgotten await
    await app.delete_chains(conn, handle)  # rejected: one
    await app.delete_chains(conn, [handle], True)  # rejected: by position
    await app.list_jobs(conn, status="done")  # rejected: no such status
    await app.list_chains(conn, kind=ship)  # rejected: a kind is not its name
    wrong: Chain[int] | None = await app.get_chain(conn, handle)  # rejected: the chain ends with a str
    chain = app.sync.get_chain(sync, handle)
    print(chain.result)  # rejected: there may be none
    print(wrong)


async def mixing(conn: psycopg.AsyncConnection[Any], sync: psycopg.Connection[Any], handle: Handle[str]) -> None:
    handles: list[Handle[str]] = app.enqueue_many(conn, [ship.new(1)])  # rejected: forgotten await
    enqueued: Handle[str] = app.enqueue(conn, ship.new(1))  # rejected: forgotten await
    app.enqueue(conn, ship.new(1))  # rejected: forgotten await
    app.cancel(conn, 1)  # rejected: forgotten await
    app.resume_order_key(conn, "customer 7")  # rejected: forgotten await
    app.wake("mail")  # rejected: forgotten await
    await app.sync.enqueue(sync, ship.new(1))  # rejected: not async
    await app.sync.cancel(sync, 1)  # rejected: not async
    await app.sync.get_chain(sync, handle)  # rejected: not async
    await app.sync.wake("mail")  # rejected: not async
    app.sync.enqueue_group(conn, [ship.new(1)], then=count.new())  # rejected: an async connection
    app.sync.get_chain(conn, handle)  # rejected: an async connection
    app.sync.list_chains(conn)  # rejected: an async connection
    app.sync.delete_chains(conn, [handle])  # rejected: an async connection
    app.sync.resume_order_key(conn, "customer 7")  # rejected: an async connection
    app.sync.wait(handle, timeout="30")  # rejected: neither seconds nor a timedelta
    await app.enqueue_group(sync, [ship.new(1)], then=count.new())  # rejected: a sync connection
    await app.get_chain(sync, handle)  # rejected: a sync connection
    await app.list_chains(sync)  # rejected: a sync connection
    await app.delete_chains(sync, [handle])  # rejected: a sync connection
    await app.resume_order_key(sync, "customer 7")  # rejected: a sync connection
    print(handles, enqueued)


async def one_job(conn: psycopg.AsyncConnection[Any], sync: psycopg.Connection[Any], handle: Handle[str]) -> None:
    app.get_job(conn, handle)  # rejected: forgotten await
    app.retry(conn, 7)  # rejected: forgotten await
    app.reschedule(conn, 7, delay=timedelta(hours=1))  # rejected: forgotten await
    app.pause_queue(conn, "mail")  # rejected: forgotten await
    app.trigger_schedule(conn, "nightly")  # rejected: forgotten await
    app.migrate()  # rejected: forgotten await
    await app.sync.retry(sync, 7)  # rejected: not async
    await app.get_job(sync, handle)  # rejected: a sync connection
    app.sync.get_job(conn, handle)  # rejected: an async connection
    app.sync.resume_schedule(conn, "nightly")  # rejected: an async connection
    await app.get_job(conn, ship)  # rejected: a kind is no job
    await app.reschedule(conn, 7, "tomorrow")  # rejected: by name
    ship.handle("7")  # rejected: a text
    wrong: Handle[int] = ship.handle(7)  # rejected: the chain ends with a str
    number: int = await app.wait(ship.handle(7))  # rejected: the chain ends with a str
    print(wrong, number)


async def fanning(conn: psycopg.AsyncConnection[Any]) -> None:
    app.enqueue_group(conn, [ship.new(1)], then=count.new())  # rejected: forgotten await
    await app.enqueue_group(conn, [ship.new(1)])  # rejected: nothing then
    await app.enqueue_group(conn, [ship], then=count.new())  # rejected: a kind is not a job
    last: Handle[str] = await app.enqueue_group(conn, [ship.new(1)], then=count.new())  # rejected: it ends with an int
    print(last)


@app.job("branch")
async def branch(job: Job[None], order: int) -> str | Continue[str]:
    return Continue(count.new()) if order else "none"  # rejected: it would end with an int
