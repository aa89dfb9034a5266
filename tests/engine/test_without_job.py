"""Handlers that do not take the job: async, in a thread, in a process, in a chain, behind a middleware, for events."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from holdfast import Continue, Event, Holdfast, Job
from tests.engine import cpu
from tests.kit.pace import QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

    from tests.kit.ledger import Ledger


async def test_handlers_without_a_job_run(app: Holdfast, ledger: Ledger) -> None:
    @app.job("loop")
    async def in_loop(to: str, copies: int = 1) -> str:
        return to * copies

    @app.job("thread")
    def in_thread(*, to: str) -> list[str]:
        return [to, threading.current_thread().name]

    @app.job("first")
    async def first(to: str) -> Continue[str]:
        return Continue(in_loop.new(to, copies=2))

    jobs = ledger.enqueue(in_loop.new("a"), in_thread.new(to="b"), first.new("c"))
    async with app.worker(**QUICK):
        await until(lambda: ledger.completed() == 4)
    assert ledger.job(jobs[0]).result == "a"
    assert ledger.job(jobs[1]).result[0] == "b"
    assert ledger.job(jobs[1]).result[1].startswith("holdfast")
    assert await in_loop("d") == "d"


async def test_a_middleware_still_gets_the_job(app: Holdfast, ledger: Ledger) -> None:
    seen = []

    async def watch(job: Job[Any], worker: str, call_next: Callable[[], Awaitable[object]]) -> object:
        seen.append(job.id)
        return await call_next()

    app.middlewares.append(watch)

    @app.job("loop")
    async def in_loop(to: str) -> str:
        return to

    job = ledger.enqueue_one(in_loop.new("a"))
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "completed")
    assert seen == [job]


async def test_in_a_process(database: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database)
    job = ledger.enqueue_one(cpu.without_job.new("a"))
    async with cpu.app.worker(queues={"default": 1}, **QUICK):
        await until(lambda: ledger.status(job) == "completed")
    text, pid = ledger.job(job).result
    assert text == "a"
    assert pid != os.getpid()


async def test_the_handler_of_a_subscription_may_take_the_event_alone(app: Holdfast, ledger: Ledger) -> None:
    sold = app.event("sold", dict[str, int])

    @app.on(sold, name="ledger", start="beginning")
    async def book(event: Event[dict[str, int]]) -> int:
        return event.payload["cents"]

    async with app.worker(**QUICK):
        app.sync.publish(ledger.conn, sold.new({"cents": 7}))
        await until(lambda: ledger.completed() == 1)
    assert ledger.value("SELECT result FROM holdfast.job_history") == 7
