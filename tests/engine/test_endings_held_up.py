"""Endings that an open transaction delays, or that the database refuses: the others are written at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import Continue, Retry, Unique
from holdfast._engine.jobs import finish
from holdfast._store import finish as store
from tests.kit.pace import BRIEF, PATIENT, QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from holdfast import Holdfast, Job
    from tests.kit.ledger import Ledger

REFUSED = "ALTER TABLE holdfast.{} ADD CONSTRAINT mine CHECK (kind <> 'bad') NOT VALID"


@pytest.mark.parametrize("kept", ["unique key", "order key"])
async def test_an_open_transaction_holds_up_one_ending_and_no_lease(
    app: Holdfast, ledger: Ledger, kept: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "LOG_AFTER", 0.5)
    gate = asyncio.Event()

    @app.job("next")
    async def following(job: Job[None]) -> str:
        return "followed"

    @app.job("act")
    async def act(job: Job[None], special: bool = False) -> int | Continue[str]:
        await gate.wait()
        return Continue(following.new().options(unique=Unique("u"))) if special and kept == "unique key" else job.id

    special = ledger.enqueue_one(act.new(special=True).options(order_key="a"))
    (behind,) = ledger.enqueue(act.new().options(order_key="a"))
    innocent = ledger.enqueue(*[act.new() for _ in range(50)])
    until_when = "SELECT locked_until FROM holdfast.job WHERE id = %s"
    async with app.worker(queues={"default": 60}, **BRIEF):
        await until(lambda: ledger.statuses().get("processing") == 51)
        with psycopg.connect(ledger.url) as user:
            if kept == "unique key":
                app.sync.enqueue(user, following.new().options(unique=Unique("u"), queue="elsewhere"))
            else:
                user.execute("SELECT holdfast.delete_job(%s)", [behind])
            lease = ledger.value(until_when, special)
            gate.set()
            await until(lambda: all(ledger.status(job) == "completed" for job in innocent))
            # Longer than the lease that it had when its handler ended.
            await until(lambda: ledger.value("SELECT now() > %s", lease))
            assert ledger.job(special)[:2] == ("processing", 1)
            assert ledger.value(until_when, special) > lease
            more = ledger.enqueue(*[act.new() for _ in range(20)])
            await until(lambda: all(ledger.status(job) == "completed" for job in more))
            user.rollback()
        await until(lambda: ledger.statuses() == {"completed": 73 if kept == "unique key" else 72})
    assert ledger.wasted() == []
    logged = [record for record in caplog.records if "another session's open transaction" in record.message]
    assert [record.__dict__["id"] for record in logged] == [special], "said once"


async def test_an_ending_may_be_held_up_for_longer_than_its_handler_may_run(app: Holdfast, ledger: Ledger) -> None:
    @app.job("next")
    async def following(job: Job[None]) -> None: ...

    @app.job("act", max_runtime=ms(1000))
    async def act(job: Job[None]) -> Continue[None]:
        return Continue(following.new().options(unique=Unique("u")))

    with psycopg.connect(ledger.url) as user:
        app.sync.enqueue(user, following.new().options(unique=Unique("u"), queue="elsewhere"))
        async with app.worker(**BRIEF):
            job = ledger.enqueue_one(act.new())
            await until(lambda: ledger.status(job) == "processing")
            lease = ledger.value("SELECT locked_until FROM holdfast.job WHERE id = %s", job)
            # That is longer than its handler may run, and longer than the lease with which it began.
            await until(lambda: ledger.value("SELECT now() > %s + interval '1 second'", lease))
            assert ledger.job(job)[:2] == ("processing", 1)
            user.rollback()
            await until(lambda: ledger.statuses() == {"completed": 2})
    assert ledger.wasted() == []


async def test_a_refused_ending_is_found_by_halves_and_fails(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule of the user's own on the table of history, say."""
    ledger.do(REFUSED.format("job_history"))
    sizes: list[int] = []
    real, gate = store.finish_jobs, asyncio.Event()

    def counting(worker: int, endings: list[store.Ending], *, careful: bool = False) -> object:
        sizes.append(len(endings))
        return real(worker, endings, careful=careful)

    monkeypatch.setattr(finish, "finish_jobs", counting)

    @app.job("good")
    async def good(job: Job[None]) -> None:
        await gate.wait()

    @app.job("bad")
    async def bad(job: Job[None]) -> None:
        await gate.wait()

    jobs = ledger.enqueue(*[good.new() for _ in range(99)])
    culprit = ledger.enqueue_one(bad.new())
    async with app.worker(queues={"default": 100}, batch_size=100, **PATIENT):
        await until(lambda: ledger.statuses() == {"processing": 100})
        gate.set()
        await until(lambda: ledger.statuses() == {"completed": 99, "failed": 1})
    assert ledger.job(culprit)[:2] == ("failed", 1)
    assert ledger.job(culprit).error_code == "InvalidJob"
    assert {ledger.job(job).attempt for job in jobs} == {1}
    assert len(sizes) < 40


async def test_all_of_a_batch_refused(app: Holdfast, ledger: Ledger) -> None:
    ledger.do(REFUSED.format("job_history"))

    @app.job("bad")
    async def bad(job: Job[None]) -> None: ...

    async with app.worker(**PATIENT):
        ledger.enqueue(*[bad.new() for _ in range(8)])
        await until(lambda: ledger.statuses() == {"failed": 8})


async def test_what_cannot_end_at_all_is_left_to_the_reaper(
    app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.do(REFUSED.format("job_history"))
    ledger.do(REFUSED.format("job_failed"))

    @app.job("bad", retry=Retry(max_attempts=1))
    async def bad(job: Job[None]) -> None: ...

    @app.job("good")
    async def good(job: Job[None]) -> None: ...

    async with app.worker(**QUICK) as worker:
        culprit = ledger.enqueue_one(bad.new())
        await until(lambda: worker.counts.get("job_lost") == 1)
        assert worker.pipelines[0].held == {}
        jobs = ledger.enqueue(*[good.new() for _ in range(20)])
        await until(lambda: all(ledger.status(job) == "completed" for job in jobs))
        assert ledger.job(culprit)[:2] == ("processing", 1)
    logged = [record for record in caplog.records if "left to the reaper" in record.message]
    assert [record.__dict__["id"] for record in logged] == [culprit]
