"""Events keep their type from the publisher to the subscriber."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, assert_type

from django.db import connection
from pydantic import BaseModel

from holdfast import Event, Holdfast, Job, Kind, NewEvent, Retry, Topic, inbox
from holdfast._relay.sinks.cloud_events import CloudEvents
from holdfast._relay.sinks.nats import NatsSink

if TYPE_CHECKING:
    import asyncpg
    import psycopg
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session


class Paid(BaseModel):
    invoice: int


@dataclass
class Shipped:
    order: int


class Posted(TypedDict):
    text: str


app = Holdfast()
paid = app.event("invoice.paid", Paid, version=2)
shipped = app.event("order.shipped", Shipped)
posted = app.event("posted", Posted)
assert_type(paid, Topic[Paid])
assert_type(shipped, Topic[Shipped])
assert_type(paid.new(Paid(invoice=7), key="7", headers={"tenant": "a"}), NewEvent)
assert_type(posted.new({"text": "hello"}), NewEvent)
assert_type(paid.read("{}"), Paid)


async def publishing(
    conn: psycopg.AsyncConnection[Any], other: asyncpg.Connection[Any], session: AsyncSession, events: list[NewEvent]
) -> None:
    assert_type(await app.publish(conn, paid.new(Paid(invoice=7))), int)
    assert_type(await app.publish(other, shipped.new(Shipped(7))), int)
    assert_type(await app.publish_many(session, [paid.new(Paid(invoice=7)), posted.new({"text": "a"})]), list[int])
    await app.publish_many(conn, events)


def publishing_sync(conn: psycopg.Connection[Any], session: Session) -> None:
    assert_type(app.sync.publish(conn, paid.new(Paid(invoice=7))), int)
    assert_type(app.sync.publish(connection, paid.new(Paid(invoice=7))), int)
    assert_type(app.sync.publish_many(session, (shipped.new(Shipped(1)),)), list[int])


@app.on(paid, name="ledger", start="beginning", ordered=True, queue="books", retry=Retry(max_attempts=9))
async def book(job: Job[None], event: Event[Paid]) -> int:
    assert_type((event.id, event.topic, event.key), tuple[int, str, str | None])
    assert_type((event.version, event.published_at, event.trace), tuple[int, datetime, str | None])
    assert_type(event.payload, Paid)
    assert_type(event.headers.get("tenant"), str | None)
    return event.payload.invoice


@app.on(paid, name="plain")
async def book_plain(event: Event[Paid]) -> int:
    assert_type(event.payload, Paid)
    return event.id


@app.on(shipped, name="mail")
def mail(job: Job[None], event: Event[Shipped]) -> None:
    assert_type(event.payload.order, int)


def as_a_kind(job: Job[None], event: Event[Shipped]) -> None:
    kind: Kind[..., Any] = mail
    mail(job, event)
    assert_type((kind.name, mail.name), tuple[str, str])


app.relay("everything", to=NatsSink("nats://localhost"))
app.relay(
    "some",
    paid,
    shipped,
    to=NatsSink("nats://localhost"),
    start="beginning",
    partitions=4,
    poison="park_key",
    window=100,
    envelope=CloudEvents(source="/shop"),
    lease=timedelta(seconds=10),
)


async def receiving(conn: psycopg.AsyncConnection[Any], session: AsyncSession, plain: asyncpg.Connection[Any]) -> None:
    async with conn.transaction(), inbox.once(conn, "id", "billing") as fresh:
        assert_type(fresh, bool)
    async with inbox.once(session, "id", "billing"), inbox.once(plain, "id", "billing"):
        pass
    assert_type(await handle(conn, "id", 7), str | None)
    assert_type(await enter(session, Shipped(7), note="x"), int | None)


def receiving_sync(conn: psycopg.Connection[Any], session: Session) -> None:
    with inbox.sync.once(conn, "id", "billing") as fresh, inbox.sync.once(connection, "id", "billing"):
        assert_type(fresh, bool)
    assert_type(handle_sync(session, "id"), str | None)


@inbox.consumer("billing")
async def handle(conn: psycopg.AsyncConnection[Any], message_id: str, amount: int) -> str:
    return f"{message_id} {amount}"


def order_id(message: Shipped) -> str:
    return str(message.order)


@inbox.consumer("ledger", id_of=order_id)
async def enter(session: AsyncSession, message: Shipped, *, note: str) -> int:
    return message.order


@inbox.sync.consumer("billing")
def handle_sync(session: Session, message_id: str) -> str:
    return message_id
