"""Chains looked at, completed and deleted from outside, with real workers about."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import (
    AbortReason,
    ChainAwaited,
    ChainFailed,
    Continue,
    Fail,
    Holdfast,
    HoldfastError,
    InvalidJob,
    Job,
    OrderKey,
    PayloadTooLarge,
    WrongIsolation,
)
from tests.kit.pace import PATIENT
from tests.kit.statement import DESIGN, Document
from tests.kit.waiting import until

if TYPE_CHECKING:
    from holdfast import Kind
    from tests.kit.ledger import Ledger

    Connection = psycopg.AsyncConnection[Any]

design = Document(DESIGN)

DAY = timedelta(days=1)


@pytest.fixture
def approve(app: Holdfast) -> Kind[..., str]:
    """A job that waits for a person."""

    @app.job("approve")
    def approve(job: Job[None]) -> str:
        return "unknown looked"

    return approve


@design.states("a chain goes on from one job to the next, and its result is the last one's")
async def test_a_chain_and_its_jobs(app: Holdfast, conn: Connection) -> None:
    @app.job("last")
    async def last(job: Job[None], fail: bool) -> str | Fail:
        return Fail("broken") if fail else "done"

    @app.job("first")
    async def first(job: Job[None], fail: bool) -> str | Continue[str]:
        return Continue(last.new(fail=fail))

    good, bad, waiting = await app.enqueue_many(
        conn, [first.new(fail=False), first.new(fail=True), first.new(fail=False).options(delay=DAY)]
    )
    async with app.worker(**PATIENT):
        await app.wait(good)
        with pytest.raises(ChainFailed):
            await app.wait(bad)
    chain = await app.get_chain(conn, good)
    assert chain is not None
    assert (chain.id, chain.status, chain.result) == (good.id, "completed", "done")
    assert [(job.kind, job.status) for job in chain.jobs] == [("first", "completed"), ("last", "completed")]
    assert chain.jobs[-1] == await app.get_job(conn, chain.jobs[-1].id)
    assert chain.jobs[0].next_id == chain.jobs[1].id
    by_id = await app.get_chain(conn, good.id)
    assert by_id == chain
    assert by_id.result == "done"
    chain = await app.get_chain(conn, bad)
    assert chain is not None
    assert chain.status == "failed"
    with pytest.raises(ChainFailed, match="broken"):
        _ = chain.result
    chain = await app.get_chain(conn, waiting)
    assert chain is not None
    assert chain.status == "pending"
    with pytest.raises(HoldfastError, match=f"chain {waiting.id} has not ended: its job {waiting.id} is pending"):
        _ = chain.result
    assert await app.get_chain(conn, 4711) is None


def test_of_a_long_chain_the_last_thousand_jobs(app: Holdfast, ledger: Ledger) -> None:
    ledger.do(
        "INSERT INTO holdfast.job_history (id, chain_id, next_id, created_at, available_at, finished_at, status, "
        "attempt, max_attempts, priority, payload_version, queue, kind, result) "
        "SELECT n, nullif(1, n), nullif(n, 1500) + 1, now(), now(), now(), 'completed', 1, 3, 5, 1, 'default', 'turn', "
        "to_json(n) FROM generate_series(1, 1500) AS n"
    )
    chain = app.sync.get_chain(ledger.conn, 1)
    assert chain is not None
    assert [job.id for job in chain.jobs] == list(range(501, 1501))
    assert (chain.status, chain.result) == ("completed", 1500)


async def test_chains_are_listed_newest_first(app: Holdfast, conn: Connection, approve: Kind[..., str]) -> None:
    handles = await app.enqueue_many(conn, [approve.new() for _ in range(5)])
    await app.complete_chain(conn, handles[2], "yes")
    lines = await app.list_chains(conn, kind="approve", limit=3)
    assert [line.id for line in lines] == [handle.id for handle in handles[:1:-1]]
    more = await app.list_chains(conn, kind="approve", limit=3, before=lines[-1].id)
    assert [line.id for line in more] == [handles[1].id, handles[0].id]
    assert [line.id for line in await app.list_chains(conn, status="completed")] == [handles[2].id]
    assert await app.list_chains(conn, kind="other") == []
    with pytest.raises(ValueError, match="1 to 1000"):
        await app.list_chains(conn, limit=5000)


@design.states("the client completes a chain from outside, without a worker")
async def test_a_person_completes_a_chain(app: Holdfast, conn: Connection, approve: Kind[..., str]) -> None:
    handle = await app.enqueue(conn, approve.new().options(delay=DAY))
    wait = asyncio.create_task(app.wait(handle))
    assert await app.complete_chain(conn, handle, "approved") == "completed"
    assert await wait == "approved"
    assert await app.complete_chain(conn, handle, "again") == "already_ended"
    assert await app.complete_chain(conn, 4711, "again") == "not_found"


async def test_the_worker_of_a_completed_chain_is_asked_to_stop(
    app: Holdfast, conn: Connection, ledger: Ledger
) -> None:
    started, reasons = asyncio.Event(), list[AbortReason | None]()

    @app.job("poll")
    async def poll(job: Job[None]) -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            reasons.append(job.signal.reason)
        return "polled"

    handle = await app.enqueue(conn, poll.new())
    async with app.worker(**PATIENT) as worker:
        await started.wait()
        assert await app.complete_chain(conn, handle, "the webhook came first") == "completed"
        assert await app.wait(handle) == "the webhook came first"
        await until(lambda: reasons == [AbortReason.already_completed])
        await until(lambda: worker.counts.get("job_lost") == 1)
    assert ledger.statuses() == {"completed": 1}


async def test_a_chain_is_continued_from_outside(app: Holdfast, conn: Connection, approve: Kind[..., str]) -> None:
    @app.job("thank")
    async def thank(job: Job[None], whom: str) -> str:
        return f"thanked {whom}"

    handle = await app.enqueue(conn, approve.new().options(delay=DAY))
    assert await app.complete_chain(conn, handle, Continue(thank.new("ada"))) == "completed"
    async with app.worker(**PATIENT):
        assert await app.wait(handle) == "thanked ada"


async def test_completing_is_part_of_the_callers_transaction(
    app: Holdfast, conn: Connection, database: str, approve: Kind[..., str]
) -> None:
    handle = await app.enqueue(conn, approve.new().options(delay=DAY))
    async with await psycopg.AsyncConnection.connect(database) as other:
        assert await app.complete_chain(other, handle, "yes") == "completed"
        await other.rollback()
        assert (await app.list_chains(conn))[0].status == "pending"
        await other.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        with pytest.raises(WrongIsolation):
            await app.complete_chain(other, handle, "yes")


async def test_a_result_that_json_cannot_say_is_refused_before_anything_is_sent(
    app: Holdfast, conn: Connection, approve: Kind[..., str]
) -> None:
    handle = await app.enqueue(conn, approve.new().options(delay=DAY))
    with pytest.raises(InvalidJob, match=f"chain {handle.id}: a value is not JSON-serializable"):
        await app.complete_chain(conn, handle.id, object())
    with pytest.raises(PayloadTooLarge):
        await app.complete_chain(conn, handle, "x" * 300_000)
    assert (await app.list_chains(conn))[0].status == "pending"


async def test_deleting_spares_whom_others_wait_for(app: Holdfast, conn: Connection, approve: Kind[..., str]) -> None:
    first, alone = await app.enqueue_many(conn, [approve.new(), approve.new()])
    second = await app.enqueue(conn, approve.new().options(after=[first]))
    third = await app.enqueue(conn, approve.new().options(after=[second]))
    with pytest.raises(ChainAwaited) as caught:
        await app.delete_chains(conn, [first, alone])
    assert caught.value.waiters == (second.id,)
    assert await app.get_chain(conn, alone) is not None, "all or nothing"
    assert await app.delete_chains(conn, [alone.id, 4711]) == [alone.id]
    assert sorted(await app.delete_chains(conn, [first], cascade=True)) == [first.id, second.id, third.id]
    assert await app.list_chains(conn) == []
    assert await app.delete_chains(conn, [first]) == []


async def test_deleting_a_chain_stops_its_running_job(app: Holdfast, conn: Connection) -> None:
    started, reasons = asyncio.Event(), list[AbortReason | None]()

    @app.job("poll")
    async def poll(job: Job[None]) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            reasons.append(job.signal.reason)

    handle = await app.enqueue(conn, poll.new())
    async with app.worker(**PATIENT):
        await started.wait()
        assert await app.delete_chains(conn, [handle]) == [handle.id]
        await until(lambda: reasons == [AbortReason.not_found])
    assert await app.get_chain(conn, handle) is None


async def test_the_same_on_a_sync_connection(app: Holdfast, ledger: Ledger, approve: Kind[..., str]) -> None:
    conn = ledger.conn
    first, second = app.sync.enqueue_many(conn, [approve.new(), approve.new()])
    assert app.sync.complete_chain(conn, first, "yes") == "completed"
    assert app.sync.complete_chain(conn, second.id, Continue(approve.new())) == "completed"
    # A sync wait is refused in an event loop, so a thread waits.
    sync_wait: Any = app.sync.wait
    wait: Any = partial(asyncio.to_thread, sync_wait)
    assert await wait(first) == await wait(first.id) == "yes"
    chain = app.sync.get_chain(conn, second)
    assert chain is not None
    assert (chain.status, len(chain.jobs)) == ("pending", 2)
    assert [line.id for line in app.sync.list_chains(conn, status="completed")] == [first.id]
    assert app.sync.delete_chains(conn, [first, second.id]) == [first.id, second.id]
    with pytest.raises(ChainFailed, match="not_found"):
        await wait(first)
    with pytest.raises(TimeoutError, match=r"has not ended within 0\.1 s"):
        await wait(app.sync.enqueue(conn, approve.new()), timeout=timedelta(seconds=0.1))
    await until(lambda: ledger.sessions() == 0)
    await until(lambda: ledger.rows("SELECT FROM holdfast.watcher WHERE until > now()") == [])


async def test_a_stopped_order_key_is_let_go_on(app: Holdfast, conn: Connection, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None], fail: bool) -> str | Fail:
        return Fail("broken") if fail else "done"

    stopping = OrderKey("customer 7", on_failure="block")
    await app.enqueue_many(conn, [act.new(fail=True).options(order_key=stopping)] * 2)
    last = await app.enqueue(conn, act.new(fail=False).options(order_key=stopping))
    stops = "SELECT count(*) FROM holdfast.order_stop"
    async with app.worker(**PATIENT):
        await until(lambda: ledger.value(stops) == 1)
        assert await app.resume_order_key(conn, "customer 7")
        await until(lambda: ledger.value(stops) == 1)
        assert app.sync.resume_order_key(ledger.conn, "customer 7")
        assert await app.wait(last) == "done"
    assert not await app.resume_order_key(conn, "customer 7")


@pytest.mark.parametrize("unknown", [2**63, -(2**63) - 1])
async def test_an_id_that_no_job_can_have_is_not_found(
    app: Holdfast, conn: Connection, ledger: Ledger, unknown: int
) -> None:
    assert await app.cancel(conn, unknown) == app.sync.cancel(ledger.conn, unknown) == "not_found"
    assert await app.get_chain(conn, unknown) is app.sync.get_chain(ledger.conn, unknown) is None
    assert await app.complete_chain(conn, unknown, "x") == "not_found"
    assert app.sync.complete_chain(ledger.conn, unknown, "x") == "not_found"
    assert await app.delete_chains(conn, [unknown]) == app.sync.delete_chains(ledger.conn, [unknown]) == []
    with pytest.raises(ChainFailed, match=f"chain {unknown} not_found"):
        await asyncio.to_thread(app.sync.wait, unknown)
