"""Listeners receive the jobs that this process enqueues and cancels, and jobs that others completed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
from prometheus_client import CollectorRegistry

from holdfast import Holdfast, Job, Unique
from holdfast.telemetry import instrument
from tests.kit.pace import QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from holdfast._engine.report.transition import Transition
    from tests.kit.ledger import Ledger


async def test_enqueueing_and_cancelling_are_reported_and_counted(app: Holdfast, ledger: Ledger, database: str) -> None:
    received: list[Transition] = []
    registry = CollectorRegistry()
    instrument(app, registry=registry)
    app.listeners.append(received.append)

    @app.job("act", queue="mail")
    async def act(job: Job[Any]) -> None: ...

    once = act.new().options(unique=Unique("u"))
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        first = await app.enqueue(conn, once)
        again = await app.enqueue(conn, once)
        many = await app.enqueue_many(conn, [act.new(), once, act.new()])
        group = await app.enqueue_group(conn, [act.new(), act.new()], then=act.new())
        assert await app.cancel(conn, many[0].id) == "cancelled"
        assert await app.cancel(conn, 10**9) == "not_found"
    last = app.sync.enqueue(ledger.conn, act.new())
    assert app.sync.cancel(ledger.conn, last.id) == "cancelled"
    assert not again.created
    assert [(one.name, one.job, one.kind) for one in received] == [
        ("job_enqueued", first.id, "act"),
        ("job_enqueued", many[0].id, "act"),
        ("job_enqueued", many[2].id, "act"),
        ("job_enqueued", group.id, "act"),
        ("job_cancelled", many[0].id, None),
        ("job_enqueued", last.id, "act"),
        ("job_cancelled", last.id, None),
    ]
    labels = {"queue": "mail", "kind": "act"}
    assert registry.get_sample_value("holdfast_enqueued_total", labels) == 1 + 2 + 3 + 1


async def test_a_job_completed_from_outside_is_not_reported_as_lost(app: Holdfast, ledger: Ledger) -> None:
    began, received = asyncio.Event(), list[str]()

    @app.job("act")
    async def act(job: Job[Any]) -> None:
        began.set()
        await job.signal.wait()

    app.listeners.append(lambda transition: received.append(transition.name))
    async with app.worker(**(QUICK | {"heartbeat": ms(200)})):
        job = ledger.enqueue_one(act.new())
        await began.wait()
        app.sync.complete_chain(ledger.conn, job, None)
        await until(lambda: "job_completed_elsewhere" in received)
    assert "job_lost" not in received
