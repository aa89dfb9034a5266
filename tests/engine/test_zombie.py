"""Workers that die, and workers that come back from the dead."""

from __future__ import annotations

import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.engine import zombie_app
from tests.engine.zombie import Process
from tests.kit.pace import LEASE
from tests.kit.waiting import Stopwatch, until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger


@pytest.mark.nightly
async def test_a_killed_workers_job_is_recovered_after_one_lease(ledger: Ledger, database: str) -> None:
    async with Process("first", database) as first:
        job = ledger.enqueue_one(zombie_app.wait.new(30))
        await first.prints("started", job, 1)
        ledger.do("UPDATE holdfast.job SET payload = '{\"seconds\": 0}'")
        async with Process("second", database) as second:
            renewed = ledger.value("SELECT locked_until FROM holdfast.job")
            first.send(signal.SIGKILL)
            async with Stopwatch() as watch:
                assert await first.ended() == -signal.SIGKILL
                await second.prints("started", job, 2)
            assert watch.seconds < LEASE + 5, "a lease, a reap interval, a look, and what a machine may stand still"
            await until(lambda: ledger.status(job) == "completed")
            assert await second.stop() == 0
    assert ledger.attempts(job) == [(1, "lost"), (2, "completed")]
    assert ledger.job(job).result == "second"
    assert ledger.value("SELECT min(ended_at) FROM holdfast.attempt") >= renewed, "not before its lease ran out"
    assert dict(ledger.rows("SELECT name, stop_reason FROM holdfast.worker")) == {"first": "lost", "second": "stopped"}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [zombie_app.wait, zombie_app.wait_in_thread], ids=["async", "plain"])
@pytest.mark.parametrize("done", [True, False], ids=["done by another", "running elsewhere"])
async def test_a_zombie_changes_nothing_and_its_handler_gets_the_reason(
    ledger: Ledger, database: str, kind: object, done: bool
) -> None:
    """Frozen past its lease, then woken: its handler gets the reason, and its writes are refused."""
    assert kind in {zombie_app.wait, zombie_app.wait_in_thread}
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(Process("first", database))
        job = ledger.enqueue_one(kind.new(60))
        await first.prints("started", job, 1)
        first.send(signal.SIGSTOP)
        ledger.do("UPDATE holdfast.job SET payload = %s::json", f'{{"seconds": {0 if done else 60}}}')
        second = await stack.enter_async_context(Process("second", database))
        await second.prints("started", job, 2)
        if done:
            await until(lambda: ledger.status(job) == "completed")
        before = ledger.job(job)
        first.send(signal.SIGCONT)
        await first.prints("aborted", job)
        # Whoever took it away may have left word of that, also when it is done by now.
        assert first.printed[-1].split()[-1] in ["taken_by_another_worker", "already_completed"][: 1 + done]
        assert await first.stop() == 0
        assert ledger.job(job) == before
        assert ledger.attempts(job)[:1] == [(1, "lost")]
        assert [outcome for _, outcome in ledger.attempts(job)].count("completed") == done


async def test_a_zombie_whose_handler_ends_before_the_abort(ledger: Ledger, database: str) -> None:
    """Its answer is ready at once when it wakes: the fence refuses it."""
    async with Process("first", database) as first:
        job = ledger.enqueue_one(zombie_app.freeze.new())
        await first.prints("started", job, 1)
        async with Process("second", database) as second:
            await second.prints("started", job, 2)
            first.send(signal.SIGCONT)
            await first.prints("ended", job, 1)
            assert await first.stop() == 0
            assert ledger.job(job)[:2] == ("processing", 2)
            assert ledger.attempts(job) == [(1, "lost")]
    assert ledger.rows("SELECT FROM holdfast.job_history") == []
