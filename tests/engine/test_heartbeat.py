"""Leases are renewed whatever handlers do, and what is lost is aborted at once."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import AbortReason, Holdfast, Job, Lease
from holdfast._engine.jobs import heartbeat
from tests.kit.pace import ALERT, AT_ONCE, BRIEF, LEASE, PATIENT, QUICK, ms
from tests.kit.waiting import Stopwatch, serving, until

if TYPE_CHECKING:
    from holdfast._engine.worker import Worker
    from tests.kit.ledger import Ledger


# A heartbeat so rare that it explains nothing.
RARE: dict[str, Any] = PATIENT | {"lease": ms(600_000), "heartbeat": ms(100_000)}


async def test_a_handler_that_blocks_the_loop_for_two_leases_keeps_its_job(app: Holdfast, ledger: Ledger) -> None:
    began, ended = threading.Event(), threading.Event()

    @app.job("block")
    async def block(job: Job[None]) -> int:
        began.set()
        time.sleep(2 * LEASE)  # noqa: ASYNC251 - the point of the test
        return job.attempt

    rival = Holdfast(app.url)

    @rival.job("block")
    async def steal(job: Job[None]) -> None:
        raise AssertionError("taken")

    def compete() -> None:
        async def serve() -> None:
            async with rival.worker(id="rival", **BRIEF):
                await until(ended.is_set)

        began.wait()
        asyncio.run(serve())

    thread = threading.Thread(target=compete)
    thread.start()
    try:
        async with app.worker(id="first", **BRIEF):
            job = ledger.enqueue_one(block.new())
            await until(lambda: ledger.status(job) == "completed")
    finally:
        began.set()
        ended.set()
        await asyncio.to_thread(thread.join)
    assert ledger.job(job)[1:3] == (1, 1)
    assert ledger.attempts(job) == []


async def test_prefetched_jobs_are_renewed_too(app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "MISSED_TICKS", 1_000)  # a server that stands still is not what is tested
    gate = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None], wait: bool) -> None:
        if wait:
            await gate.wait()

    held = "FROM holdfast.job WHERE status = 'processing'"
    ledger.enqueue(*[act.new(wait=False) for _ in range(200)], *[act.new(wait=True) for _ in range(50)])
    async with app.worker(queues={"default": 1}, **BRIEF) as worker:
        await until(lambda: ledger.completed() == 200)
        await until(lambda: ledger.value(f"SELECT count(*) {held}") >= 2)
        claimed_until = ledger.value(f"SELECT max(locked_until) {held}")
        await until(lambda: ledger.value(f"SELECT min(locked_until) {held}") > claimed_until)
        await until(lambda: ledger.value("SELECT clock_timestamp() > %s", claimed_until))
        assert ledger.value(f"SELECT count(*) {held} AND locked_until < clock_timestamp()") == 0
        gate.set()
        await until(lambda: ledger.completed() == 250)
        assert "job_lost" not in worker.counts
    assert ledger.wasted() == []


@pytest.mark.parametrize("where", ["async", "plain"])
async def test_max_runtime_is_the_end(app: Holdfast, ledger: Ledger, where: str) -> None:
    reasons: list[Any] = []
    new: Any

    def note(job: Job[None]) -> None:
        reasons.append(job.signal.reason)

    if where == "async":

        @app.job("long", retry=AT_ONCE, max_runtime=ms(3000))
        async def long(job: Job[None]) -> str:
            if job.attempt > 1:
                return "quick this time"
            try:
                await asyncio.sleep(20)
            finally:
                note(job)
            return "never"

        new = long.new
    else:

        @app.job("long", retry=AT_ONCE, max_runtime=ms(3000))
        def long_plain(job: Job[None]) -> str:
            if job.attempt == 1:
                job.signal.wait_in_thread(20)
                note(job)
                return "never"
            return "quick this time"

        new = long_plain.new
    job = ledger.enqueue_one(new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "completed")
    assert reasons == [AbortReason.timeout]
    assert ledger.job(job)[1:3] == (2, "quick this time")
    assert ledger.attempts(job) == [(1, "retry"), (2, "completed")]


async def test_a_thread_that_ignores_max_runtime_loses_its_job(app: Holdfast, ledger: Ledger) -> None:
    """It cannot be ended: it keeps its slot, its lease runs out, and another attempt is made elsewhere."""
    gate = threading.Event()

    @app.job("deaf", retry=AT_ONCE, max_runtime=ms(3000))
    def unaware(job: Job[None]) -> int:
        if job.attempt == 1:
            gate.wait(60)
        return job.attempt

    job = ledger.enqueue_one(unaware.new())
    async with app.worker(queues={"default": 2}, **BRIEF) as worker:
        await until(lambda: ledger.status(job) == "completed")
        assert ledger.job(job).result == 2
        assert worker._dispatcher.slots._running_total == 1, "the deaf one"
        gate.set()
        await until(lambda: worker.counts.get("job_lost") == 1)
    assert ledger.job(job)[:3] == ("completed", 2, 2)
    assert ledger.attempts(job) == [(1, "lost"), (2, "completed")]


async def test_the_default_max_runtime_is_three_leases(app: Holdfast, ledger: Ledger) -> None:
    reasons: list[Any] = []

    @app.job("long", retry=AT_ONCE, lease=Lease(seconds=1))
    async def long(job: Job[None]) -> float:
        if job.attempt > 1:
            return 0
        started = time.monotonic()
        async with Stopwatch() as watch:
            try:
                await asyncio.sleep(60)
            finally:
                reasons.append((job.signal.reason, time.monotonic() - started, watch.seconds))
        return 1

    job = ledger.enqueue_one(long.new())
    async with app.worker(**PATIENT):
        await until(lambda: ledger.status(job) == "completed")
    # Where the machine stands still for most of a lease, the worker gives the job up and begins the attempt again.
    *stalled, (reason, took, watched) = reasons
    assert all(earlier is AbortReason.error for earlier, *_ in stalled)
    assert reason is AbortReason.timeout
    # It counts from the call of the handler, whose first line runs a moment later.
    assert took >= 2.9
    assert watched < 4.5


async def test_a_kind_with_a_short_lease_is_renewed_often_enough(app: Holdfast, ledger: Ledger) -> None:
    """The heartbeat of the settings comes every 15 s."""
    go = asyncio.Event()

    @app.job("short", lease=Lease(seconds=1))
    async def short(job: Job[None]) -> int:
        await go.wait()
        return job.attempt

    job = ledger.enqueue_one(short.new())
    async with app.worker(**PATIENT):
        await until(lambda: ledger.status(job) == "processing")
        claimed_until = ledger.value("SELECT locked_until FROM holdfast.job")
        async with Stopwatch() as watch:
            await until(lambda: ledger.value("SELECT locked_until > %s + '1 s' FROM holdfast.job", claimed_until))
        assert watch.seconds < 10
        go.set()
        await until(lambda: ledger.status(job) == "completed")
    assert ledger.job(job).attempt == 1


async def listening(worker: Worker) -> None:
    """Return when notifications arrive."""
    await until(serving(worker).session.listening.is_set)


def take_away(ledger: Ledger, job: int) -> None:
    ledger.do(
        "UPDATE holdfast.job SET lock_token = nextval('holdfast.token'), locked_by = 0, "
        "locked_until = now() + interval '1 hour' WHERE id = %s",
        job,
    )


async def test_a_lost_lease_aborts_the_handler_by_heartbeat(app: Holdfast, ledger: Ledger) -> None:
    reasons: list[Any] = []
    started: list[int] = []

    @app.job("act")
    async def act(job: Job[None], how: str) -> None:
        started.append(job.id)
        try:
            await asyncio.sleep(60)
        finally:
            reasons.append((how, job.signal.reason))

    taken, ended, deleted = ledger.enqueue(act.new("taken"), act.new("completed"), act.new("deleted"))
    async with app.worker(listen=False, **QUICK) as worker:
        await until(lambda: len(started) == 3)
        take_away(ledger, taken)
        ledger.do(
            "SELECT holdfast.complete_jobs(locked_by, ARRAY[id], ARRAY[lock_token], '{}') "
            "FROM holdfast.job WHERE id = %s",
            ended,
        )
        ledger.do("DELETE FROM holdfast.job WHERE id = %s", deleted)
        await until(lambda: len(reasons) == 3)
        await until(lambda: worker.counts.get("job_lost") == 3)
        assert not worker.pipelines[0].held
    assert sorted(reasons) == [
        ("completed", AbortReason.already_completed),
        ("deleted", AbortReason.not_found),
        ("taken", AbortReason.taken_by_another_worker),
    ]
    assert ledger.job(taken)[:2] == ("processing", 1)


async def test_a_lost_lease_aborts_the_handler_at_once_by_notification(app: Holdfast, ledger: Ledger) -> None:
    """The reaper notifies the holder."""
    reasons: list[Any] = []
    started = asyncio.Event()

    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None]) -> None:
        if job.attempt > 1:
            return
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            reasons.append(job.signal.reason)

    async with app.worker(**RARE) as worker:
        await listening(worker)
        job = ledger.enqueue_one(act.new())
        await started.wait()
        ledger.do("UPDATE holdfast.job SET locked_until = now() - interval '1 second'")
        ledger.do("SELECT holdfast.reap_jobs(NULL, '{}', 0, '-infinity', 10)")
        async with Stopwatch() as watch:
            await until(lambda: reasons)
        assert watch.seconds < 10
        await until(lambda: ledger.status(job) == "completed")
    assert reasons == [AbortReason.taken_by_another_worker]
    assert ledger.attempts(job) == [(1, "lost"), (2, "completed")]


@pytest.mark.parametrize("listen", [True, False], ids=["at once", "with the heartbeat"])
async def test_cancellation_reaches_a_running_handler(app: Holdfast, ledger: Ledger, listen: bool) -> None:
    reasons: list[Any] = []
    started = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            reasons.append(job.signal.reason)

    async with app.worker(listen=listen, **RARE if listen else QUICK) as worker:
        if listen:
            await listening(worker)
        job = ledger.enqueue_one(act.new())
        await started.wait()
        assert ledger.cancel(job) == "requested"
        await until(lambda: ledger.status(job) == "cancelled")
    assert reasons == [AbortReason.cancelled]
    assert ledger.job(job).error_code == "cancelled"


async def test_a_handler_that_finishes_all_the_same_is_not_believed(app: Holdfast, ledger: Ledger) -> None:
    started = asyncio.Event()

    @app.job("stubborn")
    async def stubborn(job: Job[None]) -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "done nevertheless"
        return "never"

    async with app.worker(**QUICK):
        job = ledger.enqueue_one(stubborn.new())
        await started.wait()
        ledger.cancel(job)
        await until(lambda: ledger.status(job) == "cancelled")
    assert ledger.job(job).result is None


async def test_a_heartbeat_that_gets_no_answer_aborts_what_is_held(app: Holdfast, ledger: Ledger) -> None:
    """There is neither a refusal nor an answer: the table of the workers is locked, so the statement hangs."""
    reasons: list[Any] = []
    started = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        if reasons:
            return
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            reasons.append(job.signal.reason)

    async with app.worker(listen=False, **ALERT):
        job = ledger.enqueue_one(act.new())
        await started.wait()
        with ledger.conn.transaction():
            ledger.do("LOCK TABLE holdfast.worker IN ACCESS EXCLUSIVE MODE")
            await until(lambda: reasons)
            # The worker may have given it back by now. Had it been reaped, its attempt would count below.
            free = "SELECT coalesce(locked_until < clock_timestamp(), false) FROM holdfast.job"
            assert not ledger.value(free), "before another may have it"
        assert reasons == [AbortReason.error]
        await until(lambda: ledger.status(job) == "completed")
    assert ledger.job(job).attempt == 1, "what the database did is not the job's fault"


async def test_a_lock_on_the_workers_row_delays_no_heartbeat(app: Holdfast, ledger: Ledger) -> None:
    go = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await go.wait()

    async with app.worker(**BRIEF):
        job = ledger.enqueue_one(act.new())
        await until(lambda: ledger.status(job) == "processing")
        with ledger.conn.transaction():
            ledger.do("SELECT FROM holdfast.worker FOR UPDATE")
            claimed_until = ledger.value("SELECT locked_until FROM holdfast.job")
            await until(lambda: ledger.value("SELECT clock_timestamp() > %s", claimed_until))
            assert ledger.value("SELECT locked_until > clock_timestamp() FROM holdfast.job")
        go.set()
        await until(lambda: ledger.status(job) == "completed")
    assert ledger.job(job).attempt == 1


async def test_the_workers_row_lives(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(id="alive", **QUICK):
        ledger.enqueue(act.new(), act.new())
        await until(
            lambda: ledger.rows("SELECT name, counters ->> 'job_completed' FROM holdfast.worker") == [("alive", "2")]
        )
        first = ledger.value("SELECT heartbeat_at FROM holdfast.worker")
        await until(lambda: ledger.value("SELECT heartbeat_at FROM holdfast.worker") > first)


async def test_workers_that_start_together_beat_at_different_times(app: Holdfast, ledger: Ledger) -> None:
    """Otherwise a fleet that reconnects after a restart of the server would beat at one moment from then on."""

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with AsyncExitStack() as stack:
        fleet = [await stack.enter_async_context(app.worker(id=f"w{n}", **PATIENT)) for n in range(8)]
        begun = time.monotonic()
        beats = [serving(worker).heartbeat for worker in fleet]
        await until(lambda: all(beat._due for beat in beats))
        waits = [beat._due - begun for beat in beats]
        assert max(waits) <= 15, "none later than an interval"
        assert max(waits) - min(waits) > 1
