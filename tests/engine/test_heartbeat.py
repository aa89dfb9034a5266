"""Leases are renewed whatever handlers do, and what is lost is aborted at once."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import AbortReason, Holdfast, Job, Lease
from tests.engine.pace import AT_ONCE, LEASE, PATIENT, QUICK, ms
from tests.engine.waiting import after, until

if TYPE_CHECKING:
    from holdfast.engine.worker import Worker
    from tests.engine.ledger import Ledger


# Real outages in real time: with `make prove`, until they stand any load beside them.
pytestmark = pytest.mark.prove


async def test_a_handler_that_blocks_the_loop_for_two_leases_keeps_its_job(app: Holdfast, ledger: Ledger) -> None:
    @app.job("block")
    async def block(job: Job[None]) -> int:
        time.sleep(2 * LEASE)  # noqa: ASYNC251 - the point of the test
        return job.attempt

    rival = Holdfast(app.url)

    @rival.job("block")
    async def steal(job: Job[None]) -> None:
        raise AssertionError("taken")

    started = threading.Event()

    def compete() -> None:
        async def serve() -> None:
            async with rival.worker(id="rival", **QUICK):
                await until(started.is_set, 30)

        asyncio.run(serve())

    thread = threading.Thread(target=compete)
    async with app.worker(id="first", **QUICK):
        job = ledger.enqueue_one(block.new())
        thread.start()
        await until(lambda: ledger.status(job) == "completed")
    started.set()
    await asyncio.to_thread(thread.join)
    assert ledger.job(job)[1:3] == (1, 1)
    assert ledger.attempts(job) == []


async def test_prefetched_jobs_are_renewed_too(app: Holdfast, ledger: Ledger) -> None:
    gate = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None], wait: bool) -> None:
        if wait:
            await gate.wait()

    async with app.worker(queues={"default": 1}, **QUICK) as worker:
        ledger.enqueue(*[act.new(wait=False) for _ in range(200)])
        await until(lambda: ledger.completed() == 200)
        ledger.enqueue(*[act.new(wait=True).options(max_attempts=1) for _ in range(3)])
        await after(2 * LEASE)
        assert ledger.value("SELECT count(*) FROM holdfast.job WHERE locked_until < now()") == 0
        gate.set()
        await until(lambda: ledger.completed() == 203)
        assert "job_lost" not in worker.counts
    assert ledger.wasted() == []


@pytest.mark.parametrize("where", ["async", "plain"])
async def test_max_runtime_is_the_end(app: Holdfast, ledger: Ledger, where: str) -> None:
    reasons: list[Any] = []
    new: Any

    def note(job: Job[None]) -> None:
        reasons.append(job.signal.reason)

    if where == "async":

        @app.job("long", retry=AT_ONCE, max_runtime=ms(500))
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

        @app.job("long", retry=AT_ONCE, max_runtime=ms(500))
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

    @app.job("deaf", retry=AT_ONCE, max_runtime=ms(300))
    def deaf(job: Job[None]) -> int:
        if job.attempt == 1:
            gate.wait(20)
        return job.attempt

    job = ledger.enqueue_one(deaf.new())
    async with app.worker(queues={"default": 2}, **QUICK) as worker:
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
        try:
            await asyncio.sleep(30)
        finally:
            reasons.append((job.signal.reason, time.monotonic() - started))
        return 1

    job = ledger.enqueue_one(long.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(job) == "completed")
    [(reason, took)] = reasons
    assert reason is AbortReason.timeout
    assert 3 <= took < 4.5


async def test_a_kinds_lease_must_outlast_the_heartbeat(app: Holdfast, ledger: Ledger) -> None:
    """A lease that runs out between two heartbeats loses every job: refused, or renewed often enough."""

    @app.job("short", lease=Lease(seconds=1))
    async def short(job: Job[None]) -> int:
        await asyncio.sleep(2.5)
        return job.attempt

    job = ledger.enqueue_one(short.new())
    try:
        worker = app.worker(**PATIENT)
    except Exception as refusal:  # noqa: BLE001 - any refusal will do that says why
        assert "lease" in str(refusal)  # noqa: PT017 - either way is right
        return
    async with worker, app.worker(id="other", **QUICK | {"queues": {"nothing": 1}}):
        await until(lambda: ledger.status(job) == "completed")
    assert ledger.job(job).attempt == 1


async def listening(worker: Worker) -> None:
    """Return when notifications are heard."""
    claimer = worker.pipelines[0]._claimer
    assert claimer is not None
    assert claimer._listener is not None
    await until(claimer._listener.listening.is_set)


def take_away(ledger: Ledger, job: int) -> None:
    ledger.do(
        "UPDATE holdfast.job SET lock_token = nextval('holdfast.token'), locked_by = 0, "
        "locked_until = now() + interval '1 hour' WHERE id = %s",
        job,
    )


async def test_a_lost_lease_aborts_the_handler_by_heartbeat(app: Holdfast, ledger: Ledger) -> None:
    reasons: list[Any] = []

    @app.job("act")
    async def act(job: Job[None], how: str) -> None:
        try:
            await asyncio.sleep(20)
        finally:
            reasons.append((how, job.signal.reason))

    taken, ended, deleted = ledger.enqueue(act.new("taken"), act.new("completed"), act.new("deleted"))
    async with app.worker(listen=False, **QUICK) as worker:
        await until(lambda: ledger.statuses() == {"processing": 3})
        take_away(ledger, taken)
        ledger.do(
            "SELECT holdfast.complete_jobs(locked_by, ARRAY[id], ARRAY[lock_token], '{}') "
            "FROM holdfast.job WHERE id = %s",
            ended,
        )
        ledger.do("DELETE FROM holdfast.job WHERE id = %s", deleted)
        await until(lambda: len(reasons) == 3, 3)
        await until(lambda: worker.counts.get("job_lost") == 3)
        assert not worker.pipelines[0].held
    assert sorted(reasons) == [
        ("completed", AbortReason.already_completed),
        ("deleted", AbortReason.not_found),
        ("taken", AbortReason.taken_by_another_worker),
    ]
    assert ledger.job(taken)[:2] == ("processing", 1)


async def test_a_lost_lease_aborts_the_handler_at_once_by_notification(app: Holdfast, ledger: Ledger) -> None:
    """The heartbeat comes every 15 s here; whoever reaps tells the holder."""
    told: list[tuple[Any, float]] = []

    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None]) -> None:
        if job.attempt > 1:
            return
        try:
            await asyncio.sleep(20)
        finally:
            told.append((job.signal.reason, time.monotonic()))

    async with app.worker(**PATIENT) as worker:
        await listening(worker)
        job = ledger.enqueue_one(act.new())
        await until(lambda: ledger.status(job) == "processing")
        ledger.do("UPDATE holdfast.job SET locked_until = now() - interval '1 second'")
        begun = time.monotonic()
        ledger.do("SELECT holdfast.reap_jobs(NULL, '{}', 0, '-infinity', 10)")
        await until(lambda: told, 2)
        await until(lambda: ledger.status(job) == "completed")
    [(reason, when)] = told
    assert reason is AbortReason.taken_by_another_worker
    assert when - begun < 1
    assert ledger.attempts(job) == [(1, "lost"), (2, "completed")]


async def test_cancellation_reaches_a_running_handler_at_once(app: Holdfast, ledger: Ledger) -> None:
    reasons: list[Any] = []

    @app.job("act")
    async def act(job: Job[None]) -> None:
        try:
            await asyncio.sleep(20)
        finally:
            reasons.append(job.signal.reason)

    async with app.worker(**PATIENT) as worker:
        await listening(worker)
        job = ledger.enqueue_one(act.new())
        await until(lambda: ledger.status(job) == "processing")
        assert ledger.cancel(job) == "requested"
        await until(lambda: ledger.status(job) == "cancelled", 2)
    assert reasons == [AbortReason.cancelled]
    assert ledger.job(job).error_code == "cancelled"


async def test_cancellation_without_listening_comes_with_the_heartbeat(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None:
        await asyncio.sleep(20)

    async with app.worker(listen=False, **QUICK):
        job = ledger.enqueue_one(act.new())
        await until(lambda: ledger.status(job) == "processing")
        assert ledger.cancel(job) == "requested"
        await until(lambda: ledger.status(job) == "cancelled", 2)


async def test_a_handler_that_finishes_all_the_same_is_not_believed(app: Holdfast, ledger: Ledger) -> None:
    @app.job("stubborn")
    async def stubborn(job: Job[None]) -> str:
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            return "done nevertheless"
        return "never"

    async with app.worker(**QUICK):
        job = ledger.enqueue_one(stubborn.new())
        await until(lambda: ledger.status(job) == "processing")
        ledger.cancel(job)
        await until(lambda: ledger.status(job) == "cancelled")
    assert ledger.job(job).result is None


async def test_a_heartbeat_that_gets_no_answer_aborts_what_is_held(app: Holdfast, ledger: Ledger) -> None:
    """Nobody says no, nobody says yes: the table of the workers is locked, so the statement hangs."""
    reasons: list[Any] = []

    @app.job("act")
    async def act(job: Job[None]) -> None:
        if reasons:
            return
        try:
            await asyncio.sleep(20)
        finally:
            reasons.append(job.signal.reason)

    async with app.worker(listen=False, **QUICK):
        job = ledger.enqueue_one(act.new())
        await until(lambda: ledger.status(job) == "processing")
        with ledger.conn.transaction():
            ledger.do("LOCK TABLE holdfast.worker IN ACCESS EXCLUSIVE MODE")
            await until(lambda: reasons, 2 * LEASE)
        assert reasons == [AbortReason.error]
        await until(lambda: ledger.status(job) == "completed")
    assert ledger.job(job).attempt == 1, "what the database did is not the job's fault"


async def test_who_locks_the_workers_row_holds_up_no_heartbeat(app: Holdfast, ledger: Ledger) -> None:
    go = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await go.wait()

    async with app.worker(**QUICK):
        job = ledger.enqueue_one(act.new())
        await until(lambda: ledger.status(job) == "processing")
        with ledger.conn.transaction():
            ledger.do("SELECT FROM holdfast.worker FOR UPDATE")
            await after(2 * LEASE)
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
