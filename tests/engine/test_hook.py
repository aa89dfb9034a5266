"""Failure hooks are called once for each failed attempt, and their errors have no effect."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING

import pytest

from holdfast import Busy, Fail, FailedAttempt, Holdfast, Job, Reschedule
from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from holdfast._engine.report import hook
from holdfast._logs import log as logs
from holdfast._model.settings import Settings
from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger


class Received(list[FailedAttempt]):
    """A hook that remembers."""

    def brief(self) -> list[tuple[int, int, str, bool]]:
        return sorted((failed.job_id, failed.attempt, failed.error_code, failed.will_retry) for failed in self)


@pytest.fixture(params=["async", "plain"])
def received(request: pytest.FixtureRequest, app: Holdfast) -> tuple[Received, Received]:
    """Hooks of both sorts, and the failures and dead letters that they received."""
    failures, dead = Received(), Received()
    for register, seen in ((app.on_failure, failures), (app.on_dead_letter, dead)):
        if request.param == "plain":
            register(seen.append)
        else:

            async def remember(failed: FailedAttempt, seen: Received = seen) -> None:
                await asyncio.sleep(0)
                seen.append(failed)

            register(remember)
    return failures, dead


async def test_an_object_whose_call_is_a_coroutine_is_a_hook(app: Holdfast, ledger: Ledger) -> None:
    class Remembering(Received):
        async def __call__(self, failed: FailedAttempt) -> None:
            await asyncio.sleep(0)
            self.append(failed)

    app.on_failure(failures := Remembering())

    @app.job("bad")
    async def bad(job: Job[None]) -> Fail:
        return Fail("never")

    job = ledger.enqueue_one(bad.new())
    async with app.worker(**QUICK):
        await until(lambda: failures.brief() == [(job, 1, "Fail", False)])


async def test_each_failed_attempt_calls_the_hook_once(
    app: Holdfast, ledger: Ledger, received: tuple[Received, Received]
) -> None:
    failures, dead = received
    error = RuntimeError("no luck")
    seen: set[int] = set()

    @app.job("flaky", retry=AT_ONCE)
    async def flaky(job: Job[None], good_from: int) -> None:
        if job.attempt < good_from:
            raise error

    @app.job("bad")
    def bad(job: Job[None]) -> Fail:
        return Fail("never")

    @app.job("fine")
    async def fine(job: Job[None], how: str) -> object:
        if job.id in seen or how == "done":
            return None
        seen.add(job.id)
        return Reschedule(ms(0)) if how == "later" else Busy(ms(0))

    once, always, failed, *_ = ledger.enqueue(
        flaky.new(2), flaky.new(9), bad.new(), fine.new("done"), fine.new("later"), fine.new("busy")
    )
    async with app.worker(id="w", **QUICK):
        await until(lambda: ledger.statuses() == {"completed": 4, "failed": 2})
    assert failures.brief() == [
        (once, 1, "RuntimeError", True),
        (always, 1, "RuntimeError", True),
        (always, 2, "RuntimeError", True),
        (always, 3, "RuntimeError", False),
        (failed, 1, "Fail", False),
    ]
    assert dead.brief() == [(always, 3, "RuntimeError", False), (failed, 1, "Fail", False)]
    [first] = [one for one in failures if one.job_id == once]
    assert (first.kind, first.error, first.worker) == ("flaky", "no luck", "w")
    assert first.exception is error
    assert error.__traceback__ is not None, "with which it can be found out where it was raised"


async def test_many_failures_call_the_hook_in_order(
    app: Holdfast, ledger: Ledger, received: tuple[Received, Received]
) -> None:
    failures, dead = received

    @app.job("bad", retry=AT_ONCE)
    async def bad(job: Job[None]) -> None:
        raise ValueError

    jobs = ledger.enqueue(*[bad.new() for _ in range(300)])
    async with app.worker(queues={"default": 50}, batch_size=200, **QUICK):
        await until(lambda: ledger.statuses() == {"failed": 300}, 30)
    assert failures.brief() == [(job, attempt, "ValueError", attempt < 3) for job in jobs for attempt in (1, 2, 3)]
    assert dead.brief() == [(job, 3, "ValueError", False) for job in jobs]
    assert [one.attempt for one in failures if one.job_id == jobs[0]] == [1, 2, 3]


async def test_neither_lost_nor_cancelled_is_a_failure(
    app: Holdfast, ledger: Ledger, received: tuple[Received, Received]
) -> None:
    started: set[int] = set()

    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None]) -> None:
        started.add(job.id)
        await job.signal.wait()
        raise RuntimeError

    lost, cancelled = ledger.enqueue(act.new(), act.new())
    async with app.worker(**QUICK) as worker:
        await until(lambda: started == {lost, cancelled})
        ledger.do(
            "UPDATE holdfast.job SET lock_token = nextval('holdfast.token'), locked_by = 0, "
            "locked_until = now() + interval '1 hour' WHERE id = %s",
            lost,
        )
        ledger.cancel(cancelled)
        await until(lambda: worker.counts.get("job_lost") == worker.counts.get("job_cancelled") == 1)
    assert received == ([], [])


async def test_a_dead_letter_of_the_reaper_calls_the_hook_of_its_process(
    app: Holdfast, ledger: Ledger, received: tuple[Received, Received]
) -> None:
    failures, dead = received

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    buried, again = ledger.enqueue(act.new().options(max_attempts=1), act.new())
    ledger.do(
        "UPDATE holdfast.job SET status = 'processing', attempt = 1, locked_by = 0, lock_token = 1, "
        "locked_until = now() - interval '1 second'"
    )
    async with app.worker(id="w", **QUICK):
        await until(lambda: ledger.status(buried) == "failed")
    assert failures == [], "nobody knows how these attempts ended"
    assert dead == [
        FailedAttempt(
            job_id=buried,
            kind="act",
            attempt=1,
            error_code="lease_expired",
            error="worker 0 did not renew the lease",
            worker="w",
            will_retry=False,
        )
    ]
    assert ledger.job(buried)[3:5] == (dead[0].error_code, dead[0].error)
    assert ledger.job(again).attempt <= 2


async def test_a_tick_tells_too(app: Holdfast, ledger: Ledger, received: tuple[Received, Received]) -> None:
    """The jobs it runs, and those of unserved kinds that its reaper finds."""
    failures, dead = received
    other = Holdfast()

    @app.job("bad")
    async def bad(job: Job[None]) -> None:
        raise Fail("no")

    @other.job("foreign")
    async def foreign(job: Job[None]) -> None: ...

    buried = ledger.enqueue_one(foreign.new().options(max_attempts=1))
    ledger.do(
        "UPDATE holdfast.job SET status = 'processing', attempt = 1, locked_by = 0, lock_token = 1, "
        "locked_until = now() - interval '1 second'"
    )
    failed = ledger.enqueue_one(bad.new())
    await run_tick(application_of(app, Settings.load({}, **QUICK)))
    assert ledger.statuses() == {"failed": 2}
    assert failures.brief() == [(failed, 1, "Fail", False)]
    assert dead.brief() == [(buried, 1, "lease_expired", False), (failed, 1, "Fail", False)]


ERRORS = (RuntimeError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, StopIteration)


@pytest.mark.parametrize("where", ["async", "plain"])
async def test_a_hook_that_raises_is_logged_and_has_no_effect(
    app: Holdfast, ledger: Ledger, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    received = Received()
    errors = iter(ERRORS)

    def broken(failed: FailedAttempt) -> None:
        raise next(errors)

    async def broken_async(failed: FailedAttempt) -> None:
        broken(failed)

    app.on_failure(broken if where == "plain" else broken_async)
    app.on_failure(received.append)

    @app.job("bad")
    async def bad(job: Job[None]) -> None:
        raise Fail("no")

    jobs = ledger.enqueue(*[bad.new() for _ in ERRORS])
    caplog.handler.addFilter(logs.ContextFilter())
    with caplog.at_level(logging.ERROR):
        async with app.worker(**QUICK):
            await until(lambda: ledger.statuses() == {"failed": len(ERRORS)})
    assert sorted(failed.job_id for failed in received) == jobs
    logged = [record for record in caplog.records if record.getMessage().startswith("a hook failed: ")]
    assert sorted(vars(record)["job"] for record in logged) == jobs
    assert all("broken" in vars(record)["hook"] for record in logged)


@pytest.mark.parametrize("where", ["async", "plain"])
async def test_a_hook_that_hangs_holds_up_no_ending_and_no_stop(
    app: Holdfast, ledger: Ledger, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hook, "STOP_SECONDS", 0.2)
    monkeypatch.setattr(hook, "MOST_WAITING", 10)
    received = Received()
    gate = threading.Event()

    if where == "plain":
        app.on_failure(lambda _: gate.wait(30))
    else:

        @app.on_failure
        async def hang(failed: FailedAttempt) -> None:
            await asyncio.sleep(30)

    app.on_dead_letter(received.append)

    @app.job("bad")
    async def bad(job: Job[None]) -> None:
        raise Fail("no")

    @app.job("good")
    async def good(job: Job[None]) -> None: ...

    with caplog.at_level(logging.ERROR):
        async with app.worker(**QUICK):
            for _ in range(20):
                before = len(received)
                ledger.enqueue(*[bad.new(), good.new()] * 10)
                await until(lambda: len(received) == before + 10)  # noqa: B023 - awaited in the same turn
            await until(lambda: ledger.statuses() == {"failed": 200, "completed": 200})
            begun = time.monotonic()
        assert time.monotonic() - begun < 15
    gate.set()
    logged = [vars(record)["calls"] for record in caplog.records if "too slow" in record.getMessage()]
    assert logged[:4] == [1, 2, 4, 8], "what it is not told is counted, and not logged one by one"
    assert len(logged) <= 8


async def test_without_hooks_nothing_runs_for_them(app: Holdfast, ledger: Ledger) -> None:
    @app.job("bad")
    async def bad(job: Job[None]) -> None:
        raise Fail("no")

    job = ledger.enqueue_one(bad.new())
    async with app.worker(**QUICK) as worker:
        await until(lambda: ledger.status(job) == "failed")
        assert not worker._hooks
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("holdfast-hook")]
