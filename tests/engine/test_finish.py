"""Endings are written in batches, at once, and never given up while they may still be ours."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from holdfast import Fail, Reschedule
from holdfast._engine.jobs import finish
from holdfast._store import finish as store
from tests.kit.pace import AT_ONCE, PATIENT, QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    import pytest

    from holdfast import Holdfast, Job
    from tests.kit.ledger import Ledger


async def test_a_lone_job_is_finished_at_once(app: Holdfast, ledger: Ledger) -> None:
    """No timer stands between the end of a handler and its ending."""
    ended: list[float] = []
    written: list[float] = []

    @app.job("act")
    async def act(job: Job[None]) -> None:
        ended.append(time.monotonic())

    app.listeners.append(
        lambda transition: written.append(time.monotonic()) if transition.name == "job_completed" else None
    )
    async with app.worker(**PATIENT):
        for _ in range(20):
            ledger.enqueue(act.new())
            await until(lambda: len(written) == len(ended) > 0)
            await asyncio.sleep(0.01)
        await until(lambda: len(written) == 20)
    took = sorted(after - before for before, after in zip(ended, written, strict=True))
    assert took[10] < 0.05


async def test_what_is_ready_is_written_together(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    plain, whole = store.complete_plain, store.finish_jobs

    def counting_plain(worker: int, endings: list[store.Ending]) -> object:
        sizes.append(len(endings))
        return plain(worker, endings)

    def counting(worker: int, endings: list[store.Ending], *, careful: bool = False) -> object:
        if not careful:  # A renewal had locked a row: the same batch again.
            sizes.append(len(endings))
        return whole(worker, endings, careful=careful)

    monkeypatch.setattr(finish, "complete_plain", counting_plain)
    monkeypatch.setattr(finish, "finish_jobs", counting)
    monkeypatch.setattr(finish, "BATCH_SECONDS", 30.0)

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    ledger.enqueue(*[act.new() for _ in range(2_000)])
    async with app.worker(queues={"default": 100}, batch_size=500, **QUICK) as worker:
        await until(lambda: worker.counts.get("job_completed") == 2_000)
    assert sum(sizes) == 2_000
    assert len(sizes) < 100
    assert max(sizes) <= finish.MOST_AT_ONCE


async def test_a_locked_row_delays_no_other_ending(app: Holdfast, ledger: Ledger) -> None:
    gate = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> int:
        await gate.wait()
        return job.id

    async with app.worker(**PATIENT):
        jobs = ledger.enqueue(*[act.new() for _ in range(10)])
        await until(lambda: ledger.statuses() == {"processing": 10})
        with ledger.conn.transaction():
            ledger.do("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", jobs[4])
            gate.set()
            await until(lambda: ledger.statuses() == {"completed": 9, "processing": 1})
            assert ledger.status(jobs[4]) == "processing"
        await until(lambda: ledger.status(jobs[4]) == "completed")
    assert [ledger.job(job).result for job in jobs] == jobs
    assert ledger.wasted() == []


async def test_endings_of_every_sort_in_one_batch(app: Holdfast, ledger: Ledger) -> None:
    gate = asyncio.Event()

    @app.job("act", retry=AT_ONCE)
    async def act(job: Job[None], what: str) -> object:
        await gate.wait()
        if what == "retry" and job.attempt == 1:
            raise RuntimeError
        if what == "reschedule" and job.id not in seen:
            seen.add(job.id)
            return Reschedule(ms(0))
        return Fail("no") if what == "fail" else what

    seen: set[int] = set()
    names = ["done", "retry", "reschedule", "fail"] * 10
    async with app.worker(queues={"default": 40}, **PATIENT):
        jobs = ledger.enqueue(*[act.new(name) for name in names])
        keyed = ledger.enqueue(*[act.new("done").options(order_key="k") for _ in range(5)])
        await until(lambda: ledger.statuses().get("processing") == 40)
        gate.set()
        await until(lambda: ledger.statuses() == {"completed": 35, "failed": 10})
    assert [ledger.job(job).attempt for job in jobs] == [1, 2, 1, 1] * 10
    assert [ledger.status(job) for job in keyed] == ["completed"] * 5


async def test_a_lost_ending_is_reported_and_forgotten(app: Holdfast, ledger: Ledger) -> None:
    go = asyncio.Event()

    @app.job("act")
    async def act(job: Job[None]) -> None:
        await go.wait()

    async with app.worker(listen=False, **PATIENT) as worker:
        job = ledger.enqueue_one(act.new())
        await until(lambda: ledger.status(job) == "processing")
        ledger.do("UPDATE holdfast.job SET lock_token = nextval('holdfast.token'), locked_by = 0")
        go.set()
        await until(lambda: worker.counts.get("job_lost") == 1)
        assert worker.pipelines[0].held == {}
    assert ledger.job(job)[:2] == ("processing", 1)
    assert "job_completed" not in worker.counts


async def test_slow_endings_hold_the_claimer_back(app: Holdfast, ledger: Ledger) -> None:
    """Slots are free at once, endings are not written at once: what is held stays bounded all the same."""
    ledger.do(
        "CREATE FUNCTION public.dawdle() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(0.2); RETURN NULL; END $$"
    )
    ledger.do(
        "CREATE TRIGGER dawdle AFTER INSERT ON holdfast.job_history FOR EACH STATEMENT EXECUTE FUNCTION public.dawdle()"
    )

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    ledger.enqueue(*[act.new() for _ in range(5_000)])
    limit = 0
    async with app.worker(queues={"default": 50}, batch_size=100, **PATIENT) as worker:
        while worker.counts.get("job_completed", 0) < 5_000:
            limit = max(limit, len(worker.pipelines[0].held))
            await asyncio.sleep(0.002)
    assert limit <= 1_500, "the slots, a batch held ready, one call being written and one that gathers"
    assert ledger.wasted() == []
