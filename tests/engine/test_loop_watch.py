"""A handler that blocks the event loop is named, with its stack, and one that does not is never named."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING

import pytest

from holdfast._engine.jobs import heartbeat, loop_watch
from holdfast._engine.jobs.loop_watch import LoopWatch
from tests.kit.pace import QUICK
from tests.kit.waiting import until

if TYPE_CHECKING:
    from holdfast import Holdfast, Job
    from tests.kit.ledger import Ledger


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(heartbeat, "LOOK_SECONDS", 0.1)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if "event loop" in line.getMessage()]


def set_when_logged(seen: threading.Event, caplog: pytest.LogCaptureFixture) -> None:
    ends = time.monotonic() + 20
    while not lines(caplog) and time.monotonic() < ends:
        time.sleep(0.01)
    seen.set()


async def test_a_job_that_blocks_the_event_loop_is_named(
    app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("export")
    async def export() -> None:
        await asyncio.sleep(0)
        time.sleep(2)  # noqa: ASYNC251 - the point of the test

    with caplog.at_level(logging.WARNING):
        async with app.worker(**QUICK):
            job = ledger.enqueue_one(export.new())
            await until(lambda: lines(caplog))
    [line] = lines(caplog)
    assert f"the event loop was blocked for 2 s by job {job} of kind export: make the handler a plain function" in line
    assert "time.sleep(2)" in line, "the stack"


async def test_a_block_that_lasts_is_logged_while_it_lasts(
    app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_watch, "LASTING_SECONDS", 0.5)

    @app.job("wait")
    async def wait() -> bool:
        return seen.wait(20)

    seen = threading.Event()
    caplog.set_level(logging.WARNING)
    threading.Thread(target=set_when_logged, args=(seen, caplog)).start()
    async with app.worker(**QUICK):
        job = ledger.enqueue_one(wait.new())
        await until(lambda: ledger.status(job) == "completed")
    assert ledger.job(job).result is True, "logged while it lasted"
    assert "the event loop has been blocked for" in lines(caplog)[0]


async def test_a_busy_event_loop_is_not_a_blocked_one(
    app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """One task runs all the time, in steps; and handlers in threads block nothing."""

    @app.job("steps")
    async def steps() -> None:
        ends = time.monotonic() + 1.5
        while time.monotonic() < ends:
            time.sleep(0.01)  # noqa: ASYNC251 - a step
            await asyncio.sleep(0)

    @app.job("thread")
    def thread(job: Job[None]) -> None:
        time.sleep(1.5)

    with caplog.at_level(logging.WARNING):
        async with app.worker(**QUICK):
            ledger.enqueue(steps.new(), thread.new())
            await until(lambda: ledger.completed() == 2)
    assert not lines(caplog)


async def test_a_process_that_was_suspended_was_not_blocked(caplog: pytest.LogCaptureFixture) -> None:
    """Looks are counted, not seconds: an hour passes between two looks."""
    watch, loop, thread = LoopWatch(), asyncio.get_running_loop(), threading.get_ident()
    await asyncio.to_thread(watch.check, loop, thread, busy=True)
    watch._looked_at -= 3600
    watch._asked_at -= 3600
    await asyncio.to_thread(watch.check, loop, thread, busy=True)
    assert not lines(caplog)
