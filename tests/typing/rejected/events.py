"""Every marked line is an error to both checkers, and no other line is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from holdfast import Event, Holdfast, Job
from holdfast import inbox
from holdfast._relay.sinks.nats import NatsSink


@dataclass
class Paid:
    invoice: int


@dataclass
class Shipped:
    order: int


app = Holdfast()
paid = app.event("invoice.paid", Paid)
shipped = app.event("order.shipped", Shipped)

paid.new(Shipped(1))  # rejected: another topic's
paid.new()  # rejected: nothing said
paid.new(Paid(1), "key")  # rejected: the key by position
paid.new(Paid(1), key=1)  # rejected: a number
paid.new(Paid(1), headers={"a": 1})  # rejected: a number
app.event("x")  # rejected: no type


async def publishing(conn: psycopg.AsyncConnection[Any], sync: psycopg.Connection[Any]) -> None:
    app.publish(conn, paid.new(Paid(1)))  # rejected: forgotten await
    app.publish_many(conn, [paid.new(Paid(1))])  # rejected: forgotten await
    await app.publish(conn, Paid(1))  # rejected: not an event
    await app.publish(conn, paid)  # rejected: not an event
    await app.publish_many(conn, paid.new(Paid(1)))  # rejected: one
    await app.publish(sync, paid.new(Paid(1)))  # rejected: a sync connection
    app.sync.publish(conn, paid.new(Paid(1)))  # rejected: an async connection
    await app.sync.publish(sync, paid.new(Paid(1)))  # rejected: not async


@app.on(paid, name="a")  # rejected: a handler of another topic
async def of_another(job: Job[None], event: Event[Shipped]) -> None: ...


@app.on(paid, name="b")  # rejected: no event
async def of_nothing(job: Job[None]) -> None: ...


@app.on(paid)  # rejected: no name
async def nameless(job: Job[None], event: Event[Paid]) -> None: ...


@app.on(paid, name="c", start="yesterday")  # rejected: now, or the beginning
async def late(job: Job[None], event: Event[Paid]) -> None: ...


app.relay("out", paid)  # rejected: to whom?
app.relay("out", paid, to="nats://")  # rejected: not a sink
app.relay("out", paid, to=NatsSink("nats://"), poison="drop")  # rejected: no such policy


async def receiving(conn: psycopg.AsyncConnection[Any], sync: psycopg.Connection[Any]) -> None:
    async with inbox.once(sync, "id", "billing"):  # rejected: a sync connection
        pass
    with inbox.once(conn, "id", "billing"):  # rejected: it is async
        pass
    with inbox.sync.once(conn, "id", "billing"):  # rejected: an async connection
        pass
    async with inbox.once(conn, 7, "billing"):  # rejected: a number
        pass
    handle(conn, "id", 7)  # rejected: forgotten await
    await handle(conn, 7, 7)  # rejected: the id is a text
    await handle(conn, "id")  # rejected: an argument is missing
    text: str = await handle(conn, "id", 7)  # rejected: there may be none
    print(text)


@inbox.consumer("billing")
async def handle(conn: psycopg.AsyncConnection[Any], message_id: str, amount: int) -> str:
    return f"{message_id} {amount}"
