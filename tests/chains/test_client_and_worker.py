"""A client and its workers: each thing a chain of jobs is used for, as an application would write it."""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import ChainFailed, Continue, Holdfast, Job, Lease, Reschedule, Retry
from tests.engine.pace import AT_ONCE, PATIENT, QUICK, ms
from tests.engine.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.engine.ledger import Ledger


@pytest.fixture
async def conn(database: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        yield conn


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


async def test_a_chain_is_deleted(app: Holdfast, conn: psycopg.AsyncConnection[Any]) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    handle = await app.enqueue(conn, act.new())
    assert await app.delete_chains(conn, [handle]) == [handle.chain_id]
    assert await app.get_chain(conn, handle) is None


async def test_a_chain_completed_from_outside_aborts_its_running_job(
    app: Holdfast, conn: psycopg.AsyncConnection[Any]
) -> None:
    """A person approves, a webhook arrives: the handler only waits for it."""
    reasons: list[str | None] = []
    begun = asyncio.Event()

    @app.job("approval")
    async def approval(job: Job[None]) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reasons.append(job.signal.reason)
            raise
        return "never"

    handle = await app.enqueue(conn, approval.new())
    async with app.worker(**PATIENT):
        await begun.wait()
        await app.complete_chain(conn, handle, "approved by Ada")
        assert await app.wait(handle) == "approved by Ada"
        await until(lambda: reasons)
    assert reasons == ["already_completed"]


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


async def test_a_worker_is_configured_in_one_place(app: Holdfast, conn: psycopg.AsyncConnection[Any]) -> None:
    ran: list[str] = []

    async def middleware(job: Job[Any], worker: str, step: Callable[[], Awaitable[object]]) -> object:
        ran.append(worker)
        return await step()

    app.middlewares.append(middleware)

    @app.job("mine", lease=Lease(seconds=60), retry=Retry(base=timedelta(seconds=10), maximum=timedelta(minutes=5)))
    async def mine(job: Job[None]) -> int:
        return job.attempt

    handle = await app.enqueue(conn, mine.new())
    async with app.worker(id="worker-1", poll_interval=timedelta(seconds=60), next_job_delay={"default": timedelta(0)}):
        assert await app.wait(handle) == 1
    assert ran == ["worker-1"]


async def test_two_workers_in_one_process_share_the_work(app: Holdfast, ledger: Ledger) -> None:
    ran: list[tuple[str, int]] = []

    async def middleware(job: Job[Any], worker: str, step: Callable[[], Awaitable[object]]) -> object:
        ran.append((worker, job.id))
        await until(lambda: len({worker for worker, _ in ran}) == 2)
        return await step()

    app.middlewares.append(middleware)

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    jobs = ledger.enqueue(*[act.new() for _ in range(40)])
    async with app.worker(id="w1", queues={"default": 1}, **QUICK), app.worker(id="w2", queues={"default": 1}, **QUICK):
        await until(lambda: ledger.completed() == 40)
    assert sorted(job for _, job in ran) == jobs, "each once"
    assert {worker for worker, _ in ran} == {"w1", "w2"}


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


def test_the_table_of_retries() -> None:
    retry = Retry(base=timedelta(seconds=10), maximum=timedelta(seconds=300), max_attempts=10)
    assert [retry.delay(attempt).total_seconds() for attempt in range(1, 8)] == [10, 20, 40, 80, 160, 300, 300]


async def test_a_handler_chooses_when_it_runs_again(app: Holdfast, conn: psycopg.AsyncConnection[Any]) -> None:
    attempts: list[int] = []

    @app.job("poll")
    async def poll(job: Job[None]) -> int:
        attempts.append(job.attempt)
        if len(attempts) < 3:
            raise Reschedule(ms(10))
        return len(attempts)

    handle = await app.enqueue(conn, poll.new())
    async with app.worker(**QUICK):
        assert await app.wait(handle) == 3
    assert attempts == [1, 1, 1], "that is no failure"


async def test_one_worker_many_kinds_each_with_its_own_lease_and_retry(
    app: Holdfast, conn: psycopg.AsyncConnection[Any], ledger: Ledger
) -> None:
    @app.job("type-a")
    async def type_a(job: Job[None]) -> str:
        return "a"

    @app.job("type-b")
    async def type_b(job: Job[None]) -> str:
        return "b"

    begun, go = asyncio.Event(), asyncio.Event()

    @app.job("long-running", lease=Lease(seconds=300), retry=Retry(base=timedelta(seconds=30)))
    async def long_running(job: Job[None]) -> str:
        begun.set()
        await go.wait()
        return "long"

    handles = await app.enqueue_many(conn, [type_a.new(), type_b.new(), long_running.new()])
    async with app.worker(**QUICK):
        await begun.wait()
        assert ledger.value("SELECT max(locked_until) > now() + interval '290 seconds' FROM holdfast.job") is True
        go.set()
        assert await asyncio.gather(*map(app.wait, handles)) == ["a", "b", "long"]


async def test_middlewares_wrap_each_attempt_in_order(app: Holdfast, conn: psycopg.AsyncConnection[Any]) -> None:
    said: list[str] = []

    def named(name: str) -> Callable[..., Awaitable[object]]:
        async def middleware(job: Job[Any], worker: str, step: Callable[[], Awaitable[object]]) -> object:
            said.append(f"{name} before")
            try:
                return await step()
            finally:
                said.append(f"{name} after")

        return middleware

    app.middlewares += [named("one"), named("two"), named("three")]

    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None]) -> None:
        said.append("job")

    handle = await app.enqueue(conn, act.new())
    async with app.worker(**QUICK):
        await app.wait(handle)
    before = ["one before", "two before", "three before"]
    assert said == [*before, "job", *(name.replace("before", "after") for name in reversed(before))]


async def test_context_for_any_logger_below(app: Holdfast, conn: psycopg.AsyncConnection[Any]) -> None:
    context: contextvars.ContextVar[dict[str, object]] = contextvars.ContextVar("context")
    seen: list[dict[str, object]] = []

    async def middleware(job: Job[Any], worker: str, step: Callable[[], Awaitable[object]]) -> object:
        context.set({"job": job.id, "kind": job.kind, "worker": worker})
        return await step()

    app.middlewares.append(middleware)

    async def deep_below() -> None:
        seen.append(context.get())

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await asyncio.create_task(deep_below())

    handle = await app.enqueue(conn, act.new())
    async with app.worker(id="w1", **QUICK):
        await app.wait(handle)
    assert seen == [{"job": handle.id, "kind": "act", "worker": "w1"}]


async def test_a_span_around_each_attempt(app: Holdfast, conn: psycopg.AsyncConnection[Any]) -> None:
    spans: list[tuple[str, str]] = []

    @asynccontextmanager
    async def span(name: str) -> AsyncIterator[None]:
        try:
            yield
        except BaseException as exc:
            spans.append((name, type(exc).__name__))
            raise
        spans.append((name, "ok"))

    async def middleware(job: Job[Any], worker: str, step: Callable[[], Awaitable[object]]) -> object:
        async with span(f"job:{job.kind}"):
            return await step()

    app.middlewares.append(middleware)

    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None]) -> None:
        if job.attempt == 1:
            raise ValueError("once")

    handle = await app.enqueue(conn, act.new())
    async with app.worker(**QUICK):
        await app.wait(handle)
    assert spans == [("job:act", "ValueError"), ("job:act", "ok")]


async def test_a_failed_chain_is_reported_as_failed(app: Holdfast, conn: psycopg.AsyncConnection[Any]) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None:
        raise ValueError("no")

    handle = await app.enqueue(conn, act.new().options(max_attempts=1))
    async with app.worker(**QUICK):
        with pytest.raises(ChainFailed) as caught:
            await app.wait(handle)
    assert (caught.value.status, caught.value.error_code) == ("failed", "ValueError")
