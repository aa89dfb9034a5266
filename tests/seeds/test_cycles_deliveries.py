"""NotiChileC worker architecture: deliveries that are locked, sent at least once, deduplicated and retried."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

import psycopg
import pytest

from holdfast import Continue, Fail, Holdfast, Item, Job, Unique
from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from tenders.config import Config
from tests.kit.fleet import fast
from tests.kit.pace import AT_ONCE, QUICK
from tests.kit.statement import CYCLES, DIFFERENCES, Document
from tests.kit.waiting import until
from tests.kit.workers import Worker, expire_leases

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

doc = Document(CYCLES)
MINUTE = timedelta(minutes=1)


class Receipt(TypedDict):
    ticket: int


# Of the application that takes the place of the workers of this document.
TABLE = Config.load({}).backoff


@doc.states("the worker that locked is recorded, with its process id")
async def test_worker_pid(app: Holdfast, ledger: Ledger) -> None:
    @app.job("recorded")
    async def act(job: Job[Any]) -> None: ...

    one = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(one) == "completed")
    assert ledger.value("SELECT pid FROM holdfast.worker WHERE id = %s", ledger.job(one).worker) == os.getpid()


@pytest.mark.parametrize(
    ("attempt", "minutes"),
    [
        doc.case("backoff after attempt 1 is 1 minute", 1, 1),
        doc.case("backoff after attempt 2 is 2 minutes", 2, 2),
        doc.case("backoff after attempt 3 is 4 minutes", 3, 4),
        doc.case("backoff after attempt 4 is 8 minutes", 4, 8),
        doc.case("backoff after attempt 5 is 16 minutes", 5, 16),
        doc.case(
            "backoff after attempt 6 is 60 minutes: the table's number, not the code's 32", 6, 60, differs=DIFFERENCES
        ),
        doc.case("backoff stays at 60 minutes", 7, 60),
    ],
)
def test_backoff(attempt: int, minutes: int) -> None:
    assert TABLE.delay(attempt) == minutes * MINUTE


@doc.states("next_attempt_at is written with the retry, and respected")
async def test_next_attempt_at(app: Holdfast, ledger: Ledger) -> None:
    @app.job("push", retry=TABLE)
    async def act(job: Job[Any]) -> None:
        raise ConnectionError("provider away")

    one = ledger.enqueue_one(act.new())
    for _ in range(2):
        await run_tick(application_of(app, fast(tick_runners=("outbox",))))
    [(attempt, wait)] = ledger.rows(
        "SELECT attempt, available_at - clock_timestamp() FROM holdfast.job WHERE id = %s", one
    )
    assert attempt == 1, "the second tick came before the minute was over"
    assert timedelta(seconds=30) < wait <= MINUTE


@doc.states("deduplication: one delivery per event and installation, by a unique key")
def test_unique(app: Holdfast, ledger: Ledger) -> None:
    @app.job("deliver")
    async def act(job: Job[Any], installation: int) -> None: ...

    def new(installation: int) -> Any:
        return act.new(installation).options(unique=Unique(f"event:1:{installation}"))

    handles = app.sync.enqueue_many(ledger.conn, [new(1), new(2), new(1)])
    assert [handle.created for handle in handles] == [True, True, False]
    assert handles[2].id == handles[0].id


@doc.states("deduplication holds between concurrent workers: a unique index decides")
async def test_unique_concurrently(app: Holdfast, ledger: Ledger) -> None:
    @app.job("raced")
    async def act(job: Job[Any]) -> None: ...

    def insert() -> bool:
        with psycopg.connect(ledger.url) as conn:
            return app.sync.enqueue(conn, act.new().options(unique=Unique("same"))).created

    created = await asyncio.gather(*[asyncio.to_thread(insert) for _ in range(6)])
    assert sum(created) == 1


@doc.states("a worker that crashes before it sends loses nothing: the next one sends")
async def test_crash_before_sending(app: Holdfast, ledger: Ledger) -> None:
    sent: list[int] = []

    @app.job("unsent", retry=AT_ONCE)
    async def act(job: Job[Any]) -> None:
        sent.append(job.id)

    one = ledger.enqueue_one(act.new())
    expire_leases(ledger.conn, Worker(ledger.conn, "unsent").claim())
    await run_tick(application_of(app, fast(tick_runners=("reaper", "outbox"), retry=AT_ONCE)))
    assert sent == [one]


@doc.states("a crash between two writes leaves both or none: event and deliveries share a transaction")
def test_atomic(app: Holdfast, ledger: Ledger) -> None:
    @app.job("atomic")
    async def act(job: Job[Any]) -> None: ...

    ledger.do("CREATE TABLE tender (id int)")
    with ledger.conn.transaction(force_rollback=True):  # as after a crash
        ledger.do("INSERT INTO tender VALUES (1)")
        app.sync.enqueue(ledger.conn, act.new())
    assert ledger.value("SELECT count(*) FROM tender") == 0
    assert ledger.value("SELECT count(*) FROM holdfast.job WHERE kind = 'atomic'") == 0


@doc.states("a delivery that cannot succeed fails at once: an invalid installation")
async def test_invalid(app: Holdfast, ledger: Ledger) -> None:
    @app.job("invalid")
    async def act(job: Job[Any]) -> None:
        raise Fail("device not registered")

    one = ledger.enqueue_one(act.new())
    await run_tick(application_of(app, fast(tick_runners=("outbox",))))
    assert ledger.job(one)[:5] == ("failed", 1, None, "Fail", "device not registered")


@doc.states("receipts are a later step: sending commits together with the receipt that is to be fetched")
async def test_receipt_follows(app: Holdfast, ledger: Ledger) -> None:
    fetched: list[str] = []

    @app.job("receipt.fetch")
    async def receipt(job: Job[Any], ticket: str) -> str:
        fetched.append(ticket)
        return "ok"

    @app.job("push.dispatch")
    async def push(job: Job[Any]) -> Continue[str]:
        return Continue(receipt.new("ticket-1").options(delay=timedelta(0)))

    one = ledger.enqueue_one(push.new())
    async with app.worker(**QUICK):
        assert await app.wait(one) == "ok"
    assert fetched == ["ticket-1"]


@doc.states("receipts are fetched many at a time, by a handler that takes a batch", differs=DIFFERENCES)
async def test_receipts_in_batches(app: Holdfast, ledger: Ledger) -> None:
    calls: list[list[int]] = []

    @app.batch("receipts", size=50, queue="receipts")
    async def fetch(items: list[Item[Receipt]]) -> None:
        calls.append([item.args["ticket"] for item in items])

    ids = ledger.enqueue(*[fetch.new({"ticket": n}) for n in range(20)])
    async with app.worker(**QUICK):
        await until(lambda: all(ledger.status(one) == "completed" for one in ids))
    assert sorted(n for call in calls for n in call) == list(range(20))
    assert len(calls) < 20
