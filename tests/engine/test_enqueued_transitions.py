"""Listeners and metrics receive jobs that no `enqueue` made: those of schedules, subscriptions, chains, replays."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry

from holdfast import Continue, Event, Every, Fail, Holdfast, Job
from holdfast._ops.caller import Person, Role
from holdfast._ops.requests import JobAction, QueueAction
from holdfast.ops import operations
from holdfast.telemetry import instrument
from tests.kit.pace import QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from holdfast._engine.report.transition import Transition
    from tests.kit.ledger import Ledger

ANN = Person("ann", Role.OPERATOR)
QUICKLY = QUICK | {"idle_max": ms(200)}


class Received:
    """The enqueued jobs that listeners of this process received, and its counts."""

    def __init__(self, app: Holdfast) -> None:
        self.registry = CollectorRegistry()
        instrument(app, registry=self.registry)
        self.transitions: list[Transition] = []
        app.listeners.append(self.transitions.append)

    def of(self, kind: str) -> list[dict[str, Any]]:
        found = [one for one in self.transitions if one.name == "job_enqueued" and one.kind == kind]
        return [{"id": one.job, **one.details} for one in found]

    def counted(self, queue: str, kind: str) -> float | None:
        return self.registry.get_sample_value("holdfast_enqueued_total", {"queue": queue, "kind": kind})


@pytest.fixture
def received(app: Holdfast) -> Received:
    return Received(app)


async def test_a_schedule(app: Holdfast, ledger: Ledger, received: Received) -> None:
    @app.job("report", queue="nightly")
    async def report(job: Job[Any]) -> None: ...

    app.schedule("every-second", report.new(), every=Every(timedelta(seconds=1)))
    async with app.worker(**QUICKLY):
        await until(lambda: ledger.completed() > 0 and received.of("report") != [])
    ids = ledger.value(
        "SELECT array_agg(id ORDER BY id) "
        "FROM (SELECT id FROM holdfast.job UNION ALL SELECT id FROM holdfast.job_history) AS made"
    )
    rest = {"queue": "nightly", "cause": "schedule", "source": "every-second"}
    assert received.of("report") == [{"id": id_, **rest} for id_ in ids]
    assert received.counted("nightly", "report") == len(ids)


async def test_a_subscription(app: Holdfast, ledger: Ledger, received: Received) -> None:
    paid = app.event("paid", int)

    @app.on(paid, name="book", queue="books")
    async def book(job: Job[None], event: Event[int]) -> None: ...

    async with app.worker(**QUICKLY):
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.position WHERE locked_by IS NOT NULL") > 0)
        app.sync.publish_many(ledger.conn, [paid.new(n) for n in range(3)])
        await until(lambda: ledger.completed() == 3)
        await until(lambda: len(received.of("book")) == 3)
    ids = [job["id"] for job in received.of("book")]
    assert ledger.value("SELECT array_agg(id ORDER BY id) FROM holdfast.job_history") == sorted(ids)
    rest = {"queue": "books", "cause": "subscription", "source": "book"}
    assert received.of("book") == [{"id": id_, **rest} for id_ in ids]
    assert received.counted("books", "book") == 3


async def test_a_chain(app: Holdfast, ledger: Ledger, received: Received, database: str) -> None:
    @app.job("second", queue="slow")
    async def second(job: Job[Any]) -> None: ...

    @app.job("first")
    async def first(job: Job[Any]) -> Continue[None]:
        return Continue(second.new())

    @app.job("own")
    async def own(job: Job[Any]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await job.complete(conn, Continue(second.new()))

    async with app.worker(**QUICKLY):
        before = ledger.enqueue_one(first.new())
        await until(lambda: received.of("second") != [])
        following = ledger.value("SELECT next_id FROM holdfast.job_history WHERE id = %s", before)
        assert received.of("second") == [{"id": following, "queue": "slow", "cause": "chain", "source": before}]
        assert received.counted("slow", "second") == 1
        # The id of what follows a completion in the handler's own transaction is not known: it is only counted.
        ledger.enqueue_one(own.new())
        await until(lambda: received.counted("slow", "second") == 2)
    waiting = ledger.enqueue_one(first.new())
    assert app.sync.complete_chain(ledger.conn, waiting, Continue(second.new())) == "completed"
    assert received.counted("slow", "second") == 3
    assert len(received.of("second")) == 1


async def test_replays_and_cancelled_jobs_of_the_api(app: Holdfast, ledger: Ledger, received: Received) -> None:
    @app.job("charge", queue="money")
    async def charge(job: Job[Any]) -> None:
        raise Fail("declined")

    dead = [ledger.enqueue_one(charge.new()) for _ in range(2)]
    async with app.worker(**QUICKLY):
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.job_failed") == 2)
    site = operations(app)
    try:
        service = site.state.operations.first.service
        for _ in range(2):  # the second request is refused
            await service.act_on_jobs(JobAction(action="retry", ids=dead, preview=False), ANN)
        made = {row["source"]: row["id"] for row in received.of("charge")}
        rest = {"queue": "money", "cause": "replay"}
        assert received.of("charge") == [{"id": id_, **rest, "source": source} for source, id_ in made.items()]
        assert [ledger.value("SELECT id FROM holdfast.job WHERE replay_of = %s", one) for one in dead] == [
            made[one] for one in dead
        ]
        assert received.counted("money", "charge") == 2

        await service.act_on_jobs(JobAction(action="cancel", ids=[made[dead[0]]], preview=False), ANN)
        await service.act_on_queue("money", QueueAction(action="cancel_waiting", preview=False), ANN)
        cancelled = [one.job for one in received.transitions if one.name == "job_cancelled"]
        assert cancelled == [made[dead[0]], made[dead[1]]]
    finally:
        await site.state.operations.close()


async def test_what_the_application_enqueues(app: Holdfast, ledger: Ledger, received: Received) -> None:
    @app.job("act")
    async def act(job: Job[Any]) -> None: ...

    job = app.sync.enqueue(ledger.conn, act.new())
    assert received.of("act") == [{"id": job.id, "queue": "default", "cause": "call", "source": None}]
