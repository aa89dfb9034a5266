"""A client and its workers: each thing a chain of jobs is used for, as an application would write it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import ChainFailed, Continue, Holdfast, Job
from tests.kit.pace import PATIENT, QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger


async def test_a_chain_is_started_looked_at_and_waited_for(app: Holdfast, conn: psycopg.AsyncConnection[Any]) -> None:
    @app.job("ship")
    async def ship(job: Job[None], order_id: int) -> str:
        return f"order {order_id} shipped"

    @app.job("charge")
    async def charge(job: Job[None], order_id: int) -> str | Continue[str]:
        return Continue(ship.new(order_id))

    handle = await app.enqueue(conn, charge.new(7))
    chain = await app.get_chain(conn, handle)
    assert chain is not None
    assert [job.kind for job in chain.jobs] == ["charge"]
    async with app.worker(**QUICK):
        assert await app.wait(handle) == "order 7 shipped"
    chain = await app.get_chain(conn, handle)
    assert chain is not None
    assert [(job.kind, job.status) for job in chain.jobs] == [("charge", "completed"), ("ship", "completed")]


async def test_a_transaction_sends_one_notification(app: Holdfast, ledger: Ledger, database: str) -> None:
    """However many jobs: who sleeps is woken once."""

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    with psycopg.connect(database, autocommit=True) as listener:
        listener.execute("LISTEN holdfast")
        with psycopg.connect(database) as conn:
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # always tells everybody
            for _ in range(10):
                app.sync.enqueue(conn, act.new())
            app.sync.enqueue_many(conn, [act.new() for _ in range(10)])
        assert len(list(listener.notifies(timeout=5, stop_after=1))) == 1
        assert list(listener.notifies(timeout=0)) == []


async def test_a_handler_sees_why_it_should_stop(app: Holdfast, conn: psycopg.AsyncConnection[Any]) -> None:
    seen: list[str | None] = []
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.job("act")
    def act(job: Job[None]) -> None:
        loop.call_soon_threadsafe(begun.set)
        job.signal.wait_in_thread(30)
        seen.append(job.signal.reason)

    handle = await app.enqueue(conn, act.new())
    async with app.worker(**PATIENT):
        await begun.wait()
        await app.delete_chains(conn, [handle])
        await until(lambda: seen)
    assert seen == ["not_found"]


async def test_a_failed_chain_is_reported_as_failed(app: Holdfast, conn: psycopg.AsyncConnection[Any]) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None:
        raise ValueError("no")

    handle = await app.enqueue(conn, act.new().options(max_attempts=1))
    async with app.worker(**QUICK):
        with pytest.raises(ChainFailed) as caught:
            await app.wait(handle)
    assert (caught.value.status, caught.value.error_code) == ("failed", "ValueError")
