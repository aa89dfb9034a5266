"""Stopping: what has not started goes back at once, what runs may end, nothing is left behind."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import AbortReason, Holdfast, Job
from holdfast._engine import pipeline
from holdfast._engine.pipeline import LAST_SECONDS
from holdfast._engine.runners import builtin, ticker
from tests.kit.pace import PATIENT, QUICK, ms
from tests.kit.trouble import Line
from tests.kit.waiting import Stopwatch, serving, until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger


def how_it_ended(ledger: Ledger) -> list[Any]:
    return [reason for (reason,) in ledger.rows("SELECT stop_reason FROM holdfast.worker WHERE stopped_at IS NOT NULL")]


async def test_unstarted_jobs_go_back_at_once_and_running_ones_may_end(app: Holdfast, ledger: Ledger) -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    @app.job("act")
    async def act(job: Job[None], wait: bool) -> None:
        if wait:
            started.set()
            await gate.wait()

    ledger.enqueue(*[act.new(wait=False) for _ in range(300)], *[act.new(wait=True) for _ in range(50)])
    worker = app.worker(queues={"default": 1}, **PATIENT)
    async with worker:
        await started.wait()
        await until(lambda: ledger.completed() == 300)
        await until(lambda: ledger.statuses()["processing"] > 1)  # some are held ready
        stopping = asyncio.create_task(worker.stop())
        await until(lambda: ledger.statuses() == {"completed": 300, "processing": 1, "pending": 49})
        assert not stopping.done()
        assert ledger.value("SELECT max(attempt) FROM holdfast.job WHERE status = 'pending'") == 0
        gate.set()
        await stopping
    assert ledger.statuses() == {"completed": 301, "pending": 49}
    assert how_it_ended(ledger) == ["stopped"]
    assert ledger.wasted() == []


async def test_what_runs_too_long_is_aborted_and_released(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "ABORT_GRACE", 5.0)  # a machine that stands still is not what is tested
    reasons: list[Any] = []
    started: list[int] = []

    @app.job("long")
    async def long(job: Job[None]) -> None:
        started.append(job.id)
        try:
            await asyncio.sleep(60)
        finally:
            reasons.append(job.signal.reason)

    @app.job("thread")
    def thread(job: Job[None]) -> None:
        started.append(job.id)
        job.signal.wait_in_thread(30)
        job.signal.raise_if_aborted()

    async with Stopwatch() as watch, app.worker(**QUICK):
        jobs = ledger.enqueue(long.new(), thread.new())
        await until(lambda: len(started) == 2)
        begun = time.monotonic()
        watch.restart()
    assert time.monotonic() - begun >= 1
    assert watch.seconds < 10
    assert reasons == [AbortReason.shutdown]
    assert [ledger.job(job)[:2] for job in jobs] == [("pending", 0)] * 2
    assert how_it_ended(ledger) == ["stopped, with jobs aborted"]


async def test_a_stop_tells_that_the_last_claim_was_not_answered(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app.worker(**QUICK) as worker:
        (pipeline,) = worker.pipelines
        links = pipeline.session.links
        hurry = links.hurry

        def hurry_unanswered(seconds: float) -> None:
            # At the last moment: the reaper shares the link, and the flag is of its last statement.
            hurry(seconds)
            links.claim.unanswered = True

        monkeypatch.setattr(links, "hurry", hurry_unanswered)
    assert how_it_ended(ledger) == ["stopped, with a claim unanswered"]


async def test_a_result_that_comes_after_all_is_kept(app: Holdfast, ledger: Ledger) -> None:
    started = asyncio.Event()

    @app.job("tidy")
    async def tidy(job: Job[None]) -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            assert job.signal.reason is AbortReason.shutdown
        return "brought to an end"

    async with app.worker(**QUICK | {"shutdown_timeout": ms(100)}):
        job = ledger.enqueue_one(tidy.new())
        await started.wait()
    assert ledger.job(job)[:3] == ("completed", 1, "brought to an end")


async def test_at_once(app: Holdfast, ledger: Ledger) -> None:
    started = asyncio.Event()

    @app.job("long")
    async def long(job: Job[None]) -> None:
        started.set()
        await asyncio.sleep(60)

    async with Stopwatch() as watch, app.worker(**PATIENT) as worker:
        job = ledger.enqueue_one(long.new())
        await started.wait()
        gently = asyncio.create_task(worker.stop())
        await until(lambda: worker.stopping)
        watch.restart()
        await worker.stop(at_once=True)
        await gently
    assert watch.seconds < 10
    assert ledger.job(job)[:2] == ("pending", 0)


@pytest.mark.parametrize("first", ["goes on", "is cancelled"])
async def test_leaving_the_block_waits_for_a_stop_under_way(app: Holdfast, ledger: Ledger, first: str) -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        started.set()
        await gate.wait()

    worker = app.worker(**PATIENT)

    async def serve() -> None:
        async with worker:
            await started.wait()
            stopping = asyncio.create_task(worker.stop())
            await until(lambda: worker.stopping)
            if first == "is cancelled":
                stopping.cancel()

    job = ledger.enqueue_one(act.new())
    serving = asyncio.create_task(serve())
    await until(lambda: worker.stopping)
    await asyncio.wait([serving], timeout=0.5)
    assert not serving.done()
    gate.set()
    await serving
    assert ledger.job(job)[:2] == ("completed", 1)
    assert how_it_ended(ledger) == ["stopped"]


async def test_a_thread_that_ignores_the_signal_is_reported(
    app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    gate, started, before = threading.Event(), threading.Event(), set(threading.enumerate())

    @app.job("deaf")
    def unaware(job: Job[None]) -> str:
        started.set()
        gate.wait(60)
        return "late"

    try:
        with caplog.at_level(logging.WARNING, "holdfast"):
            async with Stopwatch() as watch, app.worker(**QUICK | {"shutdown_timeout": ms(200)}):
                job = ledger.enqueue_one(unaware.new())
                await until(started.is_set)
                watch.restart()
        assert watch.seconds < 10, "it holds nobody up"
        assert how_it_ended(ledger) == ["stopped, with handlers that ignored it"]
        assert any("handlers did not stop" in record.message for record in caplog.records)
    finally:
        gate.set()
    await until(lambda: not [t for t in set(threading.enumerate()) - before if t.name.startswith("holdfast")])
    await until(lambda: len(asyncio.all_tasks()) == 1)
    assert ledger.job(job)[:2] in {("processing", 1), ("pending", 0)}, "nothing the deaf one returns lands"


async def test_nothing_is_left_after_a_stop(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None:
        await asyncio.sleep(0.001)

    @app.job("thread")
    def thread(job: Job[None]) -> None: ...

    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    for _ in range(3):
        async with app.worker(**QUICK):
            ledger.enqueue(*[act.new() for _ in range(30)], *[thread.new() for _ in range(30)])
            await until(lambda: ledger.statuses().keys() == {"completed"})
            await until(lambda: ledger.sessions() == 4)  # claim, finish, heartbeat, LISTEN
        assert asyncio.all_tasks() == tasks
        await until(lambda: ledger.sessions() == 0)
        # The event loop keeps threads of its own for its own use.
        await until(lambda: not {t for t in set(threading.enumerate()) - threads if not t.name.startswith("asyncio_")})


async def test_three_connections_without_listening(app: Holdfast, ledger: Ledger) -> None:
    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    async with app.worker(listen=False, **QUICK) as worker:
        ledger.enqueue(act.new())
        await until(lambda: ledger.completed() == 1)
        beat = serving(worker).heartbeat
        await until(lambda: beat.beats)
        assert ledger.sessions() == 3


async def test_a_stop_under_load_wastes_no_attempt(app: Holdfast, ledger: Ledger) -> None:
    """Whatever moment the stop comes at, a claim under way included."""
    choice = random.Random(7)

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await asyncio.sleep(choice.random() * 0.002)

    ledger.enqueue(*[act.new() for _ in range(3_000)])
    for _ in range(25):
        async with app.worker(
            queues={"default": choice.choice([5, 50])}, batch_size=choice.choice([10, 100]), **PATIENT
        ):
            await asyncio.sleep(choice.random() * 0.05)  # a random moment is what is tried
        assert "processing" not in ledger.statuses()
        assert ledger.wasted() == []


async def test_a_claim_under_way_is_given_back(app: Holdfast, ledger: Ledger) -> None:
    """The stop comes while the server works on the claim, and the claim then succeeds."""

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    ledger.do(
        "CREATE FUNCTION public.dawdle() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$"
    )
    ledger.do("CREATE TRIGGER dawdle AFTER UPDATE ON holdfast.job FOR EACH STATEMENT EXECUTE FUNCTION public.dawdle()")
    async with app.worker(**PATIENT):
        ledger.enqueue(*[act.new() for _ in range(3)])
        await until(lambda: ledger.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 1)
    await until(lambda: ledger.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 0)
    assert ledger.statuses() in ({"pending": 3}, {"completed": 3})
    assert ledger.wasted() == []


async def test_an_ending_whose_row_is_locked_is_written_before_the_end(app: Holdfast, ledger: Ledger) -> None:
    running = asyncio.Event()
    go = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> str:
        running.set()
        await go.wait()
        return "done"

    worker = app.worker(**PATIENT)
    async with worker:
        job = ledger.enqueue_one(act.new())
        await running.wait()
        with ledger.conn.transaction():
            ledger.do("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", job)
            go.set()
            stopping = asyncio.create_task(worker.stop())
            await asyncio.wait([stopping], timeout=0.5)
        await stopping
    assert ledger.status(job) == "completed"


@pytest.mark.parametrize("shown_after", [1.0, 0.0])
async def test_a_stop_keeps_its_limit_while_the_database_is_away(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, shown_after: float
) -> None:
    """The server accepts connections and says nothing, on all of them: each step has its share of one deadline.

    With ticks all the time, one of them hangs, and so does the row that would show it as running.
    """
    monkeypatch.setattr(ticker, "SHOWN_AFTER", shown_after)
    if not shown_after:
        monkeypatch.setattr(builtin, "FOLDED", ms(10))
    held = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        held.set()
        await asyncio.sleep(60)

    async with Line(ledger.url) as line:
        app.url = line.url
        worker = app.worker(**PATIENT | {"shutdown_timeout": ms(500), "reap_interval": ms(100)})
        async with Stopwatch() as watch, worker:
            ledger.enqueue(act.new())
            await held.wait()
            line.freeze()
            await until(worker.pipelines[0].session.links.claim._lock.locked)
            if not shown_after:
                await until(worker.pipelines[0].session.links.finish._lock.locked)
            watch.restart()
        assert watch.seconds < 0.5 + LAST_SECONDS + 3
    assert ledger.statuses() == {"processing": 1}


async def test_an_embedded_worker_leaves_a_handler_behind_that_swallows_its_cancellation(
    app: Holdfast, ledger: Ledger
) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    @app.job("stubborn")
    async def stubborn(job: Job[None]) -> None:
        while not go.is_set():
            started.set()
            with suppress(asyncio.CancelledError):
                await go.wait()

    async with Stopwatch() as watch, app.worker(**QUICK | {"shutdown_timeout": ms(100)}):
        ledger.enqueue(stubborn.new())
        await started.wait()
        watch.restart()
    assert watch.seconds < 10
    assert how_it_ended(ledger) == ["stopped, with handlers that ignored it"]
    assert ledger.statuses() == {"processing": 1}
    go.set()
    await until(lambda: len(asyncio.all_tasks()) == 1)


@pytest.mark.parametrize("answer", ["refusal", "silence"])
async def test_a_worker_stops_while_its_database_is_gone(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """Bounded: the flush gives up, and the reaper takes what is left."""
    monkeypatch.setattr(pipeline, "FLUSH_SECONDS", 0.5)
    monkeypatch.setattr(pipeline, "STOP_SECONDS", 0.5)
    held = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        held.set()
        await asyncio.sleep(60)

    async with Line(ledger.url) as line:
        app.url = line.url
        async with Stopwatch() as watch, app.worker(**QUICK | {"lease": ms(60_000), "shutdown_timeout": ms(200)}):
            ledger.enqueue(act.new())
            await held.wait()
            if answer == "silence":
                line.freeze()
                line.close()
            else:
                line.refuse()
            watch.restart()
        assert watch.seconds < 10
    assert ledger.statuses() == {"processing": 1}
