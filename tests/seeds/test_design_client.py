"""Worker Design: the client, which manages chains of jobs without a worker, and retries."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

import psycopg
import pytest

from holdfast import Holdfast, Job, Lease, Reschedule, Retry
from tests.kit.fleet import SOON
from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.statement import DESIGN, Document
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from holdfast import Kind
    from tests.kit.ledger import Ledger

    Greet = Kind[..., Coroutine[Any, Any, str]]

doc = Document(DESIGN)


class Number(TypedDict):
    n: int


@pytest.fixture
def greet(app: Holdfast) -> Greet:
    @app.job("greet")
    async def greet(job: Job[Any], name: str) -> str:
        return f"hello {name}"

    return greet


@doc.states("the client starts a chain of jobs without a worker, in the caller's transaction")
def test_start(app: Holdfast, greet: Greet, ledger: Ledger) -> None:
    with ledger.conn.transaction(force_rollback=True):
        undone = app.sync.enqueue(ledger.conn, greet.new("a"))
    kept = app.sync.enqueue(ledger.conn, greet.new("b"))
    assert ledger.rows("SELECT id FROM holdfast.job WHERE id = ANY (%s)", [undone.id, kept.id]) == [(kept.id,)]


@doc.states("the client retrieves a chain")
def test_get(app: Holdfast, greet: Greet, ledger: Ledger) -> None:
    handle = app.sync.enqueue(ledger.conn, greet.new("a"))
    chain = app.sync.get_chain(ledger.conn, handle)
    assert chain is not None
    assert [(one.id, one.status) for one in chain.jobs] == [(handle.id, "pending")]


@doc.states("the client deletes chains")
def test_delete(app: Holdfast, greet: Greet, ledger: Ledger) -> None:
    handle = app.sync.enqueue(ledger.conn, greet.new("a"))
    assert app.sync.delete_chains(ledger.conn, [handle]) == [handle.chain_id]
    assert app.sync.get_chain(ledger.conn, handle) is None


@doc.states("the client waits for a chain to complete, within a bound")
async def test_wait(app: Holdfast, greet: Greet, ledger: Ledger) -> None:
    handle = app.sync.enqueue(ledger.conn, greet.new("you").options(delay=timedelta(hours=1)))
    with pytest.raises(TimeoutError):
        await app.wait(handle, timeout=ms(50))
    ledger.do(
        "UPDATE holdfast.job SET available_at = now() - interval '1 second', later = NULL WHERE id = %s", handle.id
    )
    async with app.worker(**QUICK):
        assert await app.wait(handle) == "hello you"


@doc.states("notifications are batched: many jobs of one transaction notify a sleeping worker once")
def test_one_notification(app: Holdfast, greet: Greet, ledger: Ledger) -> None:
    # Somebody sleeps who can be woken.
    worker = ledger.value("INSERT INTO holdfast.worker (name) VALUES ('sleeper') RETURNING id")
    ledger.do(
        "INSERT INTO holdfast.sleeper VALUES (clock_timestamp() + interval '10 seconds', %s, 'default', '{greet}')",
        worker,
    )
    with psycopg.connect(ledger.url, autocommit=True) as listener:
        listener.execute(f"LISTEN holdfast_{worker}".encode())
        with ledger.conn.transaction():
            app.sync.enqueue_many(ledger.conn, [greet.new(str(n)) for n in range(20)])
            app.sync.enqueue(ledger.conn, greet.new("one more"))
        assert len(list(listener.notifies(timeout=1, stop_after=2))) == 1
        # Jobs one by one: the first is named, and one more notification is for all the others.
        with ledger.conn.transaction():
            named = [app.sync.enqueue(ledger.conn, greet.new(str(n))).id for n in range(20)]
        received = [each.payload for each in listener.notifies(timeout=1, stop_after=3)]
    assert received == [f"job {named[0]}", "default"]


@doc.states("client and worker can be separate: one process only enqueues, another only processes")
async def test_separate(database: str, ledger: Ledger) -> None:
    producer, consumer = Holdfast(), Holdfast(database)
    declared = producer.declare("apart", Number)

    @consumer.job("apart")
    async def act(job: Job[Any], n: int) -> int:
        return n + 1

    handle = producer.sync.enqueue(ledger.conn, declared.new({"n": 1}))
    async with consumer.worker(**QUICK):
        await until(lambda: ledger.status(handle.id) == "completed")
    assert ledger.job(handle.id).result == 2


@doc.states("client and worker can be used together in one process, and share one registry of kinds")
async def test_together(app: Holdfast, greet: Greet, ledger: Ledger) -> None:
    async with app.worker(**QUICK):
        handle = app.sync.enqueue(ledger.conn, greet.new("both"))
        assert await app.wait(handle) == "hello both"


@doc.states("backoff: min(initial * multiplier^(attempt - 1), maximum): 10, 20, 40, 80, 160, 300, 300 s")
def test_backoff() -> None:
    retry = Retry(8, base=timedelta(seconds=10), factor=2.0, maximum=timedelta(seconds=300))
    assert [retry.delay(n).total_seconds() for n in range(1, 8)] == [10, 20, 40, 80, 160, 300, 300]


@doc.states("a handler may reschedule its job explicitly, by raising; that is not a failure")
async def test_reschedule(app: Holdfast, ledger: Ledger) -> None:
    @app.job("reschedules", retry=AT_ONCE)
    async def act(job: Job[Any]) -> None:
        raise Reschedule(timedelta(hours=1))

    job = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.attempts(job))
    assert [outcome for _, outcome in ledger.attempts(job)] == ["reschedule"]
    [(status, wait)] = ledger.rows(
        "SELECT status::text, available_at - clock_timestamp() FROM holdfast.job WHERE id = %s", job
    )
    assert status == "pending"
    assert timedelta(minutes=50) < wait <= timedelta(hours=1)


@doc.states("any other error waits for a delay that depends on the attempt")
async def test_other_errors(app: Holdfast, ledger: Ledger) -> None:
    seen: list[int] = []
    tables = Retry.table([ms(0), timedelta(hours=1)], max_attempts=3, jitter=ms(0))

    @app.job("errs", retry=tables)
    async def act(job: Job[Any]) -> None:
        seen.append(job.attempt)
        raise ValueError("no")

    job = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.job(job)[:2] == ("pending", 2))
    assert seen == [1, 2]
    wait = "SELECT available_at - clock_timestamp() FROM holdfast.job WHERE id = %s"
    assert ledger.value(wait, job) > timedelta(minutes=50)


@doc.states("an error after a takeover or an outside completion is swallowed: the job is handled elsewhere")
async def test_swallowed(app: Holdfast, ledger: Ledger) -> None:
    began, ended, reported = asyncio.Event(), asyncio.Event(), list[str]()

    @app.job("overtaken", retry=AT_ONCE)
    async def act(job: Job[Any]) -> None:
        began.set()
        try:
            await job.signal.wait()
        finally:
            ended.set()
        raise ValueError("too late")

    app.listeners.append(lambda transition: reported.append(transition.name))
    async with app.worker(**(QUICK | {"heartbeat": ms(200)})):
        job = ledger.enqueue_one(act.new())
        async with asyncio.timeout(SOON):
            await began.wait()
            app.sync.complete_chain(ledger.conn, job, "outside")
            await ended.wait()
    assert ledger.job(job)[:5] == ("completed", 1, "outside", None, None)
    assert {"retry", "failed"}.isdisjoint(outcome for _, outcome in ledger.attempts(job))
    assert {"job_retried", "job_failed"}.isdisjoint(reported)
    assert "job_completed_elsewhere" in reported


@doc.states("the lease lasts 60 seconds by default, and can be given per kind: 300 s")
async def test_lease_per_kind(app: Holdfast, ledger: Ledger) -> None:
    go = asyncio.Event()

    @app.job("usual")
    async def usual(job: Job[Any]) -> None:
        await go.wait()

    @app.job("long-running", lease=Lease(300), retry=Retry(base=timedelta(seconds=30), maximum=timedelta(seconds=600)))
    async def long(job: Job[Any]) -> None:
        await go.wait()

    ids = ledger.enqueue(usual.new(), long.new())
    lease = "SELECT extract(epoch FROM locked_until - clock_timestamp()) FROM holdfast.job WHERE id = %s"
    async with app.worker():
        await until(lambda: all(ledger.status(job) == "processing" for job in ids))
        short, long_lease = (float(ledger.value(lease, job)) for job in ids)
        go.set()
        await until(lambda: all(ledger.status(job) == "completed" for job in ids))
    assert 30 < short <= 60
    assert 240 < long_lease <= 300
