"""Jobs that were lost with their worker run apart, so that one that kills its process does no harm to others."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Continue, Holdfast, Job, Retry, Unique
from holdfast._app.app import application_of
from holdfast._engine.jobs import isolation
from holdfast._engine.once import run_tick
from holdfast._model.settings import Settings
from tests.engine import zombie_app
from tests.engine.zombie import Process
from tests.kit.pace import AT_ONCE, BRIEF, QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

OFTEN = Retry(max_attempts=9, base=ms(0), jitter=ms(0))


@pytest.mark.nightly
async def test_a_job_that_kills_its_process_harms_no_other(ledger: Ledger, database: str) -> None:
    """Nine jobs run beside one that crashes, all with three attempts. It uses up its own; each of them loses one."""
    crash, *others = ledger.enqueue(zombie_app.crash.new(), *(zombie_app.wait.new(0.3) for _ in range(9)))
    deaths = 0

    def over(process: Process) -> bool:
        return not process.alive or not ledger.value("SELECT count(*) FROM holdfast.job")

    while ledger.status(crash) != "failed" or any(ledger.status(job) != "completed" for job in others):
        assert deaths < 6, "a crash in company, a crash among suspects, and one alone for each attempt that is left"
        async with Process(f"worker {deaths}", database) as process:
            await until(partial(over, process), 60)
            deaths += not process.alive
    assert ledger.job(crash)[3:5] == ("crashed_alone", "the worker's process ended while this job ran alone, 2 times")
    assert [ledger.status(job) for job in others] == ["completed"] * 9
    lost = Counter(job for job in others for _, outcome in ledger.attempts(job) if outcome == "lost")
    assert max(lost.values(), default=0) <= 1, "attempts lost to somebody else's crash"


async def test_suspects_run_while_nothing_else_does(ledger: Ledger, app: Holdfast) -> None:
    running: set[int] = set()
    met: dict[int, set[int]] = {}

    @app.job("work", retry=OFTEN)
    async def work(job: Job[Any]) -> None:
        running.add(job.id)
        for each in running:
            met.setdefault(each, set()).update(running)
        await asyncio.sleep(0.01)
        running.discard(job.id)

    jobs = ledger.enqueue(*(work.new() for _ in range(200)))
    suspects = set(jobs[::10])
    alone = set(jobs[::20])
    ledger.do("UPDATE holdfast.job SET suspect = 0 WHERE id = ANY (%s)", list(suspects))
    ledger.do("UPDATE holdfast.job SET suspect = 1 WHERE id = ANY (%s)", list(alone))
    async with app.worker(queues={"default": 4}, **QUICK):
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.job_history") == 200)
    assert all(met[job] == {job} for job in alone)
    assert all(met[job] <= suspects - alone for job in suspects - alone)
    assert all(met[job].isdisjoint(suspects) for job in set(jobs) - suspects)
    assert ledger.value("SELECT max(attempt) FROM holdfast.job_history") == 1


async def test_a_worker_that_stops_claims_no_suspects(ledger: Ledger, app: Holdfast) -> None:
    @app.job("work", retry=OFTEN)
    async def work(job: Job[Any]) -> None: ...

    async with app.worker(**QUICK) as worker:
        serving = worker.pipelines[0].serving
        assert serving is not None
        worker.pipelines[0]._stop_claiming()
        suspects = ledger.enqueue(work.new(), work.new())
        ledger.do("UPDATE holdfast.job SET suspect = 0 WHERE id = ANY (%s)", suspects)
        assert await serving.run_suspects(10, time.monotonic() + 10) == 0
        assert ledger.statuses() == {"pending": 2}


async def test_suspects_and_others_run_while_an_ending_is_held_up(
    ledger: Ledger, app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's open transaction keeps the unique keys of what follows a suspect, and another job."""
    monkeypatch.setattr(isolation, "GRACE", 0.1)
    monkeypatch.setattr(isolation, "POLL", 0.1)

    @app.job("next")
    async def following(job: Job[Any]) -> None: ...

    @app.job("act")
    async def act(job: Job[Any], key: str = "") -> Continue[None] | None:
        return Continue(following.new().options(unique=Unique(key))) if key else None

    with psycopg.connect(ledger.url) as user:
        for key in ("a", "b"):
            app.sync.enqueue(user, following.new().options(unique=Unique(key), queue="elsewhere"))
        kept, first, second, other, *rest = ledger.enqueue(act.new("a"), act.new(), act.new("b"), act.new(), act.new())
        ledger.do("UPDATE holdfast.job SET suspect = 1 WHERE id = ANY (%s)", [first, second, other])
        async with app.worker(**QUICK):
            await until(lambda: all(ledger.status(job) == "completed" for job in [first, other, *rest]))
            rest = ledger.enqueue(act.new())
            await until(lambda: ledger.status(rest[0]) == "completed")
            assert [ledger.status(job) for job in (kept, second)] == ["processing"] * 2
            user.rollback()
            await until(lambda: ledger.statuses() == {"completed": 8})


async def test_a_busy_worker_stops_for_a_suspect_and_goes_on(
    ledger: Ledger, app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    """It is never idle, as each job makes the next; and yet the suspect runs, alone."""
    running: set[int] = set()
    company: list[int] = []

    @app.job("busy", retry=OFTEN)
    async def busy(job: Job[Any]) -> None:
        running.add(job.id)
        ledger.enqueue_one(busy.new())
        await asyncio.sleep(0.05)
        running.discard(job.id)

    @app.job("suspect", retry=OFTEN)
    async def suspect(_: Job[Any]) -> None:
        company.append(len(running))

    ledger.enqueue(*(busy.new() for _ in range(6)))
    job = ledger.enqueue_one(suspect.new())
    ledger.do("UPDATE holdfast.job SET suspect = 0 WHERE id = %s", job)
    with caplog.at_level(logging.WARNING, "holdfast.isolation"):
        async with app.worker(queues={"default": 4}, **QUICK):
            await until(lambda: ledger.status(job) == "completed")
            done = ledger.value("SELECT count(*) FROM holdfast.job_history")
            await until(lambda: ledger.value("SELECT count(*) FROM holdfast.job_history") > done + 10)
    assert company == [0]
    assert ledger.value("SELECT alone_until FROM holdfast.worker") is None, "the turn is given back"
    assert [record.ids for record in caplog.records] == [[job]]  # type: ignore[attr-defined]


@pytest.mark.nightly
async def test_of_a_busy_fleet_one_worker_at_a_time_stops(ledger: Ledger, app: Holdfast) -> None:
    """Another worker has the turn: only the suspect waits."""

    @app.job("busy", retry=OFTEN)
    async def busy(_: Job[Any]) -> None:
        ledger.enqueue_one(busy.new())
        await asyncio.sleep(0.02)

    @app.job("suspect", retry=OFTEN)
    async def suspect(_: Job[Any]) -> None: ...

    other = ledger.value(
        "INSERT INTO holdfast.worker (name, alone_until) VALUES ('other', now() + interval '1 hour') RETURNING id"
    )
    ledger.enqueue(*(busy.new() for _ in range(6)))
    job = ledger.enqueue_one(suspect.new())
    ledger.do("UPDATE holdfast.job SET suspect = 0, available_at = now() - interval '1 minute' WHERE id = %s", job)
    async with app.worker(queues={"default": 2}, **QUICK):
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.job_history") > 100)
        assert ledger.status(job) == "pending"
        ledger.do("UPDATE holdfast.worker SET alone_until = NULL WHERE id = %s", other)
        await until(lambda: ledger.status(job) == "completed")


@pytest.mark.nightly
async def test_a_killed_fleet_recovers_soon(ledger: Ledger, database: str) -> None:
    """A deploy by SIGKILL: everything that ran is a suspect, and is done within a few rounds."""
    jobs = ledger.enqueue(*(zombie_app.wait.new(30) for _ in range(8)))
    async with Process("first", database) as first, Process("second", database) as second:
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.job WHERE status = 'processing'") == 8)
        for process in (first, second):
            process.send(signal.SIGKILL)
            await process.ended()
    ledger.do("UPDATE holdfast.job SET payload = '{\"seconds\": 0.1}'")
    async with Process("third", database) as third:
        await until(lambda: not ledger.value("SELECT count(*) FROM holdfast.job"), 60)
        assert await third.stop() == 0
    assert {tuple(ledger.attempts(job)) for job in jobs} == {((1, "lost"), (2, "completed"))}


async def test_a_tick_runs_suspects_too(ledger: Ledger, app: Holdfast) -> None:
    @app.job("work", retry=AT_ONCE)
    async def work(_: Job[Any]) -> None: ...

    jobs = ledger.enqueue(*(work.new() for _ in range(5)))
    ledger.do("UPDATE holdfast.job SET suspect = 0 WHERE id <> %s", jobs[0])
    result = await run_tick(application_of(app, Settings.load({"HOLDFAST_TICK_RUNNERS": "outbox"}, **BRIEF)))
    assert dict(result.runners[0].counts)["completed"] == 5
    assert {ledger.status(job) for job in jobs} == {"completed"}
