"""A subscriber's handler receives the published event, validated once more when it arrives."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from pydantic import BaseModel, PositiveInt

from holdfast import Event, Holdfast, Job
from holdfast._engine import worker as workers
from holdfast._engine.jobs import run_handlers as attempts
from tests.kit.pace import QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    import psycopg

SOON = 30.0
SPAN = trace.SpanContext(0x1234, 0x5678, is_remote=False, trace_flags=trace.TraceFlags(1))
TRACEPARENT = "00-00000000000000000000000000001234-0000000000005678-01"


class Shipped(BaseModel):
    order: PositiveInt


@dataclass(frozen=True)
class Posted:
    text: Any


async def value(conn: psycopg.AsyncConnection[Any], query: str) -> Any:
    row = await (await conn.execute(query.encode())).fetchone()
    return None if row is None else row[0]


@pytest.mark.parametrize("text", ["plain", "nul \0", "half \ud800", {"$json": "x"}, [1.5, None, 10**30], "😀 %s \\"])
async def test_whatever_was_said_arrives(database: str, conn: psycopg.AsyncConnection[Any], text: object) -> None:
    app = Holdfast(database)
    posted = app.event("said", Posted, version=2)
    received: asyncio.Queue[tuple[Event[Posted], str | None]] = asyncio.Queue()

    @app.on(posted, name="ears", start="beginning")
    async def listen(job: Job[None], event: Event[Posted]) -> None:
        received.put_nowait((event, job.headers.get("traceparent")))

    with trace.use_span(trace.NonRecordingSpan(SPAN)):
        made = await app.publish(conn, posted.new(Posted(text), key="k", headers={"a": "b"}))
    async with app.worker(**QUICK), asyncio.timeout(SOON):
        event, traced = await received.get()
    assert (event.id, event.payload, event.version, event.key, event.headers) == (
        made,
        Posted(text),
        2,
        "k",
        {"a": "b"},
    )
    assert (event.trace, traced) == (TRACEPARENT, TRACEPARENT)
    assert event.published_at == await value(conn, "SELECT published_at FROM holdfast.event")


async def test_an_event_that_does_not_fit_is_given_back_and_then_failed(
    database: str, conn: psycopg.AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Holdfast(database)
    shipped = app.event("order.shipped", Shipped)

    @app.on(shipped, name="ledger", start="beginning")
    async def book(job: Job[None], event: Event[Shipped]) -> None: ...

    monkeypatch.setattr(attempts, "MISFIT_PAUSE", ms(1))
    await conn.execute("SELECT holdfast.publish('order.shipped', '{\"order\": -1}')")
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_released", 0) > 2)
        assert await value(conn, "SELECT last_error_code FROM holdfast.job") == "InvalidJob"
        assert await value(conn, "SELECT attempt - (status = 'processing')::integer FROM holdfast.job") == 0
    await conn.execute("UPDATE holdfast.job SET created_at = now() - interval '11 minutes'")
    monkeypatch.setattr(workers, "DEPLOY_GRACE", 0.0)
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_failed", 0) == 1)
    error = await value(conn, "SELECT last_error FROM holdfast.job_failed")
    assert "order" in error
    assert "greater than 0" in error


async def test_one_misfit_keeps_no_other_event_back(database: str, conn: psycopg.AsyncConnection[Any]) -> None:
    app = Holdfast(database)
    shipped = app.event("order.shipped", Shipped)
    booked: asyncio.Queue[int] = asyncio.Queue()

    @app.on(shipped, name="ledger", start="beginning")
    async def book(job: Job[None], event: Event[Shipped]) -> None:
        booked.put_nowait(event.payload.order)

    await conn.execute("SELECT holdfast.publish('order.shipped', '\"what\"')")
    await app.publish(conn, shipped.new(Shipped(order=7)))
    async with app.worker(**QUICK), asyncio.timeout(SOON):
        assert await booked.get() == 7


async def test_the_longest_key_of_the_longest_name_is_ordered_too(
    database: str, conn: psycopg.AsyncConnection[Any]
) -> None:
    app = Holdfast(database)
    shipped = app.event("order.shipped", Shipped)
    booked: asyncio.Queue[int] = asyncio.Queue()

    @app.on(shipped, name="l" * 200, start="beginning", ordered=True)
    async def book(job: Job[None], event: Event[Shipped]) -> None:
        booked.put_nowait(event.payload.order)

    await app.publish_many(conn, [shipped.new(Shipped(order=n), key="k" * 500) for n in range(1, 6)])
    async with app.worker(**QUICK), asyncio.timeout(SOON):
        assert [await booked.get() for _ in range(5)] == [1, 2, 3, 4, 5]
