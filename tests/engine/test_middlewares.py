"""Middlewares around handlers, and listeners."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import AbortReason, Fail, Holdfast, HoldfastError, Job, Reschedule
from holdfast._engine.jobs import executor
from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.statement import DESIGN, Document
from tests.kit.waiting import until

if TYPE_CHECKING:
    from holdfast._engine.report.transition import Transition
    from tests.kit.ledger import Ledger

design = Document(DESIGN)


@design.states("middlewares wrap each attempt in order: first in, last out")
async def test_middlewares_wrap_each_attempt_in_order(app: Holdfast, ledger: Ledger) -> None:
    story: list[Any] = []

    def middleware(name: str) -> Any:
        async def around(job: Job[Any], worker: str, proceed: Any) -> object:
            story.append((name, "before", job.id, worker))
            result = await proceed()
            story.append((name, "after", result))
            return [name, result]

        return around

    @app.job("async")
    async def on_loop(job: Job[None]) -> str:
        story.append("async")
        return "a"

    @app.job("plain")
    def in_thread(job: Job[None]) -> str:
        story.append("plain")
        return "p"

    app.middlewares += [middleware("outer"), middleware("inner")]
    async with app.worker(id="w", **QUICK):
        for new, name, result in ((on_loop.new, "async", "a"), (in_thread.new, "plain", "p")):
            story.clear()
            job = ledger.enqueue_one(new())
            await until(lambda: ledger.status(job) == "completed")  # noqa: B023 - awaited in the same turn
            assert story == [
                ("outer", "before", job, "w"),
                ("inner", "before", job, "w"),
                name,
                ("inner", "after", result),
                ("outer", "after", ["inner", result]),
            ]
            assert ledger.job(job).result == ["outer", ["inner", result]]


async def test_a_middleware_may_end_the_attempt_and_see_its_errors(app: Holdfast, ledger: Ledger) -> None:
    seen: list[str] = []

    async def guard(job: Job[Any], worker: str, proceed: Any) -> object:
        if job.kind == "refused":
            raise Fail("not today")
        try:
            return await proceed()
        except RuntimeError as error:
            seen.append(str(error))
            raise

    ran: list[int] = []

    @app.job("refused")
    async def refused(job: Job[None]) -> None:
        ran.append(job.id)

    @app.job("raises", retry=AT_ONCE)
    async def raises(job: Job[None]) -> None:
        raise RuntimeError(job.attempt)

    app.middlewares.append(guard)
    jobs = ledger.enqueue(refused.new(), raises.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.statuses() == {"failed": 2})
    assert ran == []
    assert seen == ["1", "2", "3"]
    assert ledger.job(jobs[0])[1:5] == (1, None, "Fail", "not today")


async def test_a_slot_is_free_when_its_thread_is_though_a_middleware_gave_up_before(
    app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome is the middleware's; nothing runs beside the thread that goes on, and the job does not run again."""
    monkeypatch.setattr(executor, "REPORT_SECONDS", 0.01)
    gate, ran, running = threading.Event(), list[int](), list[Any]()

    @app.job("hang", retry=AT_ONCE)
    def hang(job: Job[None]) -> str:
        ran.append(job.id)
        if job.attempt == 1:
            running.append(job.signal)
            gate.wait(60)
        return "again"

    @app.job("plain", retry=AT_ONCE)
    def plain(job: Job[None]) -> None:
        ran.append(job.id)

    gave_up = asyncio.Event()

    async def limit(job: Job[Any], _worker: str, proceed: Any) -> object:
        proceeding = asyncio.ensure_future(proceed())
        if job.kind == "hang" and job.attempt == 1:
            await until(lambda: running)
            proceeding.cancel()
            gave_up.set()
        return await proceeding

    app.middlewares.append(limit)
    try:
        with caplog.at_level(logging.WARNING, "holdfast"):
            async with app.worker(queues={"default": 1}, **QUICK):
                hung = ledger.enqueue_one(hang.new())
                await gave_up.wait()
                later = ledger.enqueue(*[plain.new() for _ in range(5)])
                await until(lambda: "keeps its slot" in caplog.text)
                assert running[0].reason is AbortReason.timeout, "it is told that it is no longer wanted"
                assert ran == [hung]
                assert ledger.statuses() == {"processing": 1, "pending": 5}
                gate.set()
                await until(lambda: ledger.statuses() == {"completed": 6})
    finally:
        gate.set()
    assert sorted(ran) == sorted([hung, hung, *later])
    assert ledger.rows("SELECT error_code FROM holdfast.attempt WHERE outcome = 'retry'") == [("CancelledError",)]


async def test_a_call_that_has_not_started_when_its_attempt_ends_never_does(app: Holdfast, ledger: Ledger) -> None:
    ran: list[int] = []
    late: list[Any] = []

    @app.job("plain", retry=AT_ONCE)
    def plain(job: Job[None]) -> None:
        ran.append(job.id)

    async def careless(job: Job[Any], _worker: str, proceed: Any) -> object:
        late.append(asyncio.ensure_future(proceed()))
        return "without it"

    app.middlewares.append(careless)
    async with app.worker(**QUICK):
        job = ledger.enqueue_one(plain.new())
        await until(lambda: ledger.status(job) == "completed")
        with pytest.raises(HoldfastError, match="called after its attempt had ended"):
            await late[0]
    assert ran == []
    assert ledger.job(job).result == "without it"


async def test_listeners_receive_every_transition(app: Holdfast, ledger: Ledger) -> None:
    received: list[Transition] = []

    @app.job("done")
    async def done(job: Job[None]) -> None: ...

    @app.job("flaky", retry=AT_ONCE)
    async def flaky(job: Job[None]) -> object:
        if job.attempt == 1:
            raise RuntimeError
        seen.append(job.id)
        return Reschedule(ms(0)) if len(seen) == 1 else None

    @app.job("bad")
    async def bad(job: Job[None]) -> None:
        raise Fail("no")

    @app.job("long", retry=AT_ONCE)
    async def long(job: Job[None]) -> None:
        await asyncio.sleep(30)

    seen: list[int] = []
    app.listeners.append(received.append)
    async with app.worker(id="w", **QUICK):
        ids = dict(zip(("done", "flaky", "bad"), ledger.enqueue(done.new(), flaky.new(), bad.new()), strict=True))
        await until(lambda: ledger.statuses() == {"completed": 2, "failed": 1})
        ids["cancelled"], ids["lost"], ids["released"] = ledger.enqueue(long.new(), long.new(), long.new())
        await until(lambda: ledger.statuses().get("processing") == 3)
        ledger.cancel(ids["cancelled"])
        ledger.do("DELETE FROM holdfast.job WHERE id = %s", ids["lost"])
        await until(lambda: "job_lost" in {transition.name for transition in received})
    # Sorted: a job that went back may be claimed again before its finisher has heard that it went.
    by_job = {name: sorted(t.name for t in received if t.job == job) for name, job in ids.items()}
    assert by_job == {
        "done": ["job_claimed", "job_completed"],
        "flaky": [
            "job_claimed", "job_claimed", "job_claimed", "job_completed", "job_rescheduled", "job_retried",
        ],
        "bad": ["job_claimed", "job_failed"],
        "cancelled": ["job_cancelled", "job_claimed"],
        "lost": ["job_claimed", "job_lost"],
        "released": ["job_claimed", "job_released"],
    }  # fmt: skip
    assert {transition.worker for transition in received} == {"w"}
    own = [transition.name for transition in received if transition.job is None]
    assert own == ["worker_started", "worker_stopping", "worker_stopped"]
    assert {t.kind for t in received if t.job == ids["bad"]} == {"bad"}


async def test_reaped_jobs_reach_the_listeners(app: Holdfast, ledger: Ledger) -> None:
    received: list[Transition] = []

    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None]) -> None: ...

    job = ledger.enqueue_one(act.new())
    ledger.do(
        "UPDATE holdfast.job SET status = 'processing', attempt = 1, locked_by = 0, lock_token = 1, "
        "locked_until = now() - interval '1 second'"
    )
    app.listeners.append(received.append)
    async with app.worker(tick_runners=("outbox",), **QUICK) as worker:
        await until(lambda: ledger.status(job) == "completed")
        await until(lambda: worker.counts.get("job_reaped") == 1)
    [reaped] = [transition for transition in received if transition.name == "job_reaped"]
    assert (reaped.job, reaped.kind, reaped.details["became"]) == (job, "act", "pending")


@pytest.mark.parametrize("error", [RuntimeError, KeyError])
async def test_a_listener_that_raises_has_no_effect(
    app: Holdfast, ledger: Ledger, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    received: list[str] = []

    def broken(transition: Transition) -> None:
        raise error(transition.name)

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    app.listeners += [broken, lambda transition: received.append(transition.name)]
    with caplog.at_level(logging.CRITICAL):
        async with app.worker(**QUICK):
            ledger.enqueue(*[act.new() for _ in range(20)])
            await until(lambda: ledger.completed() == 20)
    assert received.count("job_completed") == 20
