"""The arguments of a handler, and the fields of its log lines."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import threading
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator

from holdfast import AbortReason, Holdfast, Job
from holdfast._logs import log as logs
from tests.engine.test_idempotency_key import key_of
from tests.kit.pace import AT_ONCE, QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.kit.ledger import Ledger


async def test_what_a_handler_can_ask(app: Holdfast, ledger: Ledger) -> None:
    seen: list[Any] = []

    @app.job("ask", retry=AT_ONCE)
    async def ask(job: Job[None]) -> None:
        seen.append((job.id, job.kind, job.attempt, job.chain_id, dict(job.headers), job.idempotency_key, job.token))
        if job.attempt == 1:
            raise RuntimeError

    job = ledger.enqueue_one(ask.new().options(headers={"trace": "é"}))
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "completed")
    first, second = seen
    key = key_of(ledger, job)
    assert first[:6] == (job, "ask", 1, job, {"trace": "é"}, key)
    assert second[:6] == (job, "ask", 2, job, {"trace": "é"}, key)
    assert second[6] > first[6], "a token is larger at every claim"


async def test_lines_of_a_handler_carry_the_job(
    app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    bound: dict[str, Any] = {}

    @app.job("async")
    async def on_loop(job: Job[None]) -> None:
        await asyncio.sleep(0)
        bound["async"] = dict(logs.context.get() or {})
        job.log.info("hello")

    @app.job("plain")
    def in_thread(job: Job[None]) -> None:
        bound["plain"] = dict(logs.context.get() or {})

    one, two = ledger.enqueue(on_loop.new(), in_thread.new())
    with caplog.at_level(logging.INFO, "holdfast.job"):
        async with app.worker(id="w", **QUICK):
            await until(lambda: ledger.completed() == 2)
    assert bound["async"] == {"job": one, "kind": "async", "chain": one, "worker": "w", "attempt": 1}
    assert bound["plain"] == {"job": two, "kind": "plain", "chain": two, "worker": "w", "attempt": 1}
    assert "hello" in caplog.messages
    assert not logs.context.get(), "nothing leaks out of an attempt"


async def test_success_is_not_logged_above_debug(
    app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    ledger.enqueue(*[act.new() for _ in range(50)])
    with caplog.at_level(logging.INFO, "holdfast"):
        async with app.worker(**QUICK):
            await until(lambda: ledger.completed() == 50)
    assert len(caplog.records) <= 4


async def test_payload_versions_are_upgraded(app: Holdfast, ledger: Ledger) -> None:
    @app.job("greet", version=2)
    async def greet(job: Job[None], name: str, greeting: str) -> str:
        return f"{greeting} {name}"

    @greet.upgrade(from_version=1)
    def add_greeting(payload: dict[str, Any]) -> dict[str, Any]:
        return payload | {"greeting": "hello"}

    old, new = ledger.enqueue(greet.new("a", "x"), greet.new("b", "hi"))
    ledger.do('UPDATE holdfast.job SET payload = \'{"name": "a"}\', payload_version = 1 WHERE id = %s', old)
    async with app.worker(**QUICK):
        await until(lambda: ledger.completed() == 2)
    assert (ledger.job(old).result, ledger.job(new).result) == ("hello a", "hi b")


def boom(value: int) -> int:
    return {0: 0}[value]


async def test_a_validator_that_raises_is_not_the_workers_problem(app: Holdfast, ledger: Ledger) -> None:
    @app.job("strict")
    async def strict(job: Job[None], number: Annotated[int, AfterValidator(boom)]) -> None: ...

    good, bad = ledger.enqueue(strict.new(0), strict.new(0))
    ledger.do("UPDATE holdfast.job SET payload = '{\"number\": 7}' WHERE id = %s", bad)
    async with app.worker(**QUICK) as worker:
        await until(lambda: ledger.status(good) == "completed")
        await until(lambda: not worker.pipelines[0].held)
        assert ledger.status(bad) != "processing"


async def test_one_handlers_context_is_not_the_nexts(app: Holdfast, ledger: Ledger) -> None:
    mark: contextvars.ContextVar[int] = contextvars.ContextVar("mark", default=0)
    mark.set(-1)
    seen = []

    @app.job("marks")
    async def marks(job: Job[None]) -> None:
        seen.append(mark.get())
        mark.set(job.id)
        await asyncio.sleep(0)
        assert mark.get() == job.id

    @app.job("marks.in.thread")
    def in_thread(job: Job[None]) -> None:
        seen.append(mark.get())
        mark.set(job.id)

    ledger.enqueue(*[marks.new() for _ in range(50)], *[in_thread.new() for _ in range(20)])
    async with app.worker(queues={"default": 2}, **QUICK):
        await until(lambda: ledger.completed() == 70)
    assert seen == [-1] * 70


async def test_a_plain_function_that_returns_a_coroutine_is_awaited_in_the_loop(app: Holdfast, ledger: Ledger) -> None:
    """As a decorator leaves it that is not async itself."""
    where: list[Any] = []

    def logged(handler: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(handler)
        def around(*args: Any, **kwargs: Any) -> Any:
            return handler(*args, **kwargs)

        return around

    @app.job("act")
    @logged
    async def act(job: Job[None], a: int) -> int:
        where.append(threading.current_thread())
        await asyncio.sleep(0)
        return a + 1

    class Act:
        async def __call__(self, job: Job[None]) -> str:
            return job.kind

    called = app.job("called")(Act())
    one, two = ledger.enqueue(act.new(1), called.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.statuses() == {"completed": 2})
    assert (ledger.job(one).result, ledger.job(two).result) == (2, "called")
    assert where == [threading.main_thread()]


async def test_a_coroutine_that_a_plain_function_returned_is_cancelled_as_an_async_handler_is(
    app: Holdfast, ledger: Ledger
) -> None:
    started, reasons = asyncio.Event(), list[Any]()

    async def wait(job: Job[None]) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            reasons.append(job.signal.reason)

    @app.job("act")
    def act(job: Job[None]) -> Any:
        return wait(job)

    async with app.worker(**QUICK):
        job = ledger.enqueue_one(act.new())
        await started.wait()
        ledger.cancel(job)
        await until(lambda: ledger.status(job) == "cancelled")
    assert reasons == [AbortReason.cancelled]
