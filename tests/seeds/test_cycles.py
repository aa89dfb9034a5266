"""NotiChileC worker architecture: cycles with their own frequency, run-with-lock, and the record of each run."""

from __future__ import annotations

import asyncio
import os
import socket
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict
from zoneinfo import ZoneInfo

import pytest

from holdfast import Every, Holdfast, Job
from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from holdfast._engine.runner import Runner
from holdfast._engine.runners.ticker import Limits
from tenders.config import NIGHTS, Config
from tests.kit.fleet import SOON, alone, crew, fast, make_due
from tests.kit.pace import QUICK
from tests.kit.statement import CYCLES, DIFFERENCES, Document
from tests.kit.waiting import after, until

if TYPE_CHECKING:
    from holdfast import Counts, Cron, Tick
    from tests.kit.ledger import Ledger

doc = Document(CYCLES)
PLENTY = Limits(None, SOON)
SANTIAGO = ZoneInfo("America/Santiago")
MIDNIGHT = datetime(2026, 5, 1, tzinfo=SANTIAGO).astimezone(UTC)
# The application that takes the place of the workers of this document.
TENDERS = Config.load({})


class Delivery(TypedDict):
    delivery: int


RUN = (
    "SELECT outcome, counts, error_code, error, started_at, finished_at, worker_id FROM holdfast.run WHERE runner = %s"
)


@pytest.mark.parametrize(
    ("every", "slots"),
    [
        doc.case("dispatch runs every minute", Every(TENDERS.dispatch_pause), ["00:01", "00:02", "00:03"]),
        doc.case("receipt runs every minute, on its own schedule", Every(TENDERS.receipt_wait), ["00:01", "00:02"]),
        doc.case("cleanup runs at 03:17 every day", NIGHTS["CLEANUP_CRON"], ["03:17", "03:17"]),
        doc.case("archive-export runs at 03:47 every day", NIGHTS["ARCHIVE_EXPORT_CRON"], ["03:47", "03:47"]),
    ],
)
async def test_frequencies(database: str, ledger: Ledger, every: Every | Cron, slots: list[str]) -> None:
    found, at = list[str](), MIDNIGHT
    for _ in slots:
        at = every.next(at)
        found.append(f"{at.astimezone(SANTIAGO):%H:%M}")
    assert found == slots
    name = f"frequency {slots[0]} {len(slots)}"
    async with crew(database, runner := Runner(name, lambda _: None, every=every)) as cycles:
        await cycles.ticker.tick(runner, PLENTY)
    [(stored, following)] = ledger.rows("SELECT schedule, next_at FROM holdfast.schedule WHERE name = %s", name)
    assert stored == every.text
    assert every.next(following - timedelta(seconds=1)) == following, "a slot of this schedule is next"


@doc.states("a worker runs several cycles, each in a loop of its own")
async def test_independent(app: Holdfast) -> None:
    began = {name: asyncio.Event() for name in ("ingest", "dispatch", "receipt", "cleanup", "archive")}

    async def cycle(tick: Tick) -> None:
        began[tick.name].set()
        if tick.name == "ingest":
            await tick.signal.wait()

    for name in began:
        app.runner(name)(cycle)
    async with app.worker(tick_runners=tuple(began), **(QUICK | {"shutdown_timeout": timedelta(0)})):
        async with asyncio.timeout(SOON):
            await asyncio.gather(*(event.wait() for event in began.values()))


@doc.states("a cycle that is still running is not started again in the process")
async def test_run_with_lock(database: str) -> None:
    go, began, calls = asyncio.Event(), asyncio.Event(), list[int]()

    async def cycle(tick: Tick) -> Counts:
        calls.append(1)
        began.set()
        await go.wait()
        return {"done": 1}

    runner = Runner("locked", cycle)
    async with crew(database, runner) as at:
        first = asyncio.create_task(at.ticker.tick(runner, PLENTY))
        async with asyncio.timeout(SOON):
            await began.wait()
        assert (await at.ticker.tick(runner, PLENTY)).outcome == "skipped"
        go.set()
        assert (await first).outcome == "completed"
    assert calls == [1]


@doc.states("worker_already_running is reported, as runner_already_running", differs=DIFFERENCES)
async def test_already_running(database: str, caplog: pytest.LogCaptureFixture) -> None:
    go, began = asyncio.Event(), asyncio.Event()

    async def cycle(tick: Tick) -> None:
        began.set()
        await go.wait()

    runner = Runner("reported", cycle)
    async with crew(database, runner) as at:
        first = asyncio.create_task(at.ticker.tick(runner, PLENTY))
        async with asyncio.timeout(SOON):
            await began.wait()
        await at.ticker.tick(runner, PLENTY)
        assert [reported.name for reported in at.reported] == ["runner_already_running"]
        go.set()
        await first
    assert "runner_already_running" in caplog.text


@doc.states("when a cycle has ended it may run again")
async def test_flag_is_released(database: str) -> None:
    async def cycle(tick: Tick) -> None:
        raise ValueError("even when it failed")

    runner = Runner("released", cycle)
    async with crew(database, runner) as at:
        assert [(await at.ticker.tick(runner, PLENTY)).outcome for _ in range(2)] == ["failed", "failed"]


@doc.states("a step that fails gracefully does not block the other cycles")
async def test_graceful(app: Holdfast) -> None:
    @app.runner("scraper")
    async def scraper(tick: Tick) -> None:
        raise ConnectionError("the site is away")

    @app.runner("api")
    async def api(tick: Tick) -> Counts:
        return {"new": 1}

    result = await run_tick(application_of(app, fast(tick_runners=alone("scraper", "api"))))
    assert [ticked.outcome for ticked in result.runners] == ["failed", "completed"]


@doc.states("however many workers there are, a scheduled cycle runs once per slot")
async def test_once_per_slot(database: str, ledger: Ledger) -> None:
    calls: list[Any] = []

    async def cycle(tick: Tick) -> Counts:
        calls.append(tick.slot)
        return {"done": 1}

    runners = [Runner("slotted", cycle, every=Every(timedelta(days=300))) for _ in range(2)]
    async with crew(database, runners[0]) as here, crew(database, runners[1]) as there:
        await here.ticker.tick(runners[0], PLENTY)
        make_due(ledger.conn, "slotted")
        calls.clear()
        outcomes = [
            (await at.ticker.tick(runner, PLENTY)).outcome
            for at, runner in ((here, runners[0]), (there, runners[1]), (here, runners[0]))
        ]
    assert outcomes == ["completed", "skipped", "skipped"]
    assert len(calls) == 1


@pytest.fixture
async def run(app: Holdfast, ledger: Ledger) -> tuple[Any, ...]:
    """The record of a cycle that succeeded."""
    if not ledger.rows(RUN, "tracked"):

        @app.runner("tracked")
        async def cycle(tick: Tick) -> Counts:
            await after(0.05)
            return {"licitaciones_found": 3, "licitaciones_new": 2, "notifications_sent": 1}

        await run_tick(application_of(app, fast(tick_runners=("tracked",))))
    [row] = ledger.rows(RUN, "tracked")
    return row


@doc.states("each run of a cycle is recorded with its start, its end and who ran it")
def test_run_times(run: tuple[Any, ...], ledger: Ledger) -> None:
    started, finished, worker = run[4:]
    assert finished - started >= timedelta(seconds=0.049)
    assert ledger.value("SELECT clock_timestamp()") - finished < timedelta(minutes=1)
    assert ledger.rows("SELECT pid, host FROM holdfast.worker WHERE id = %s", worker) == [
        (os.getpid(), socket.gethostname())
    ]


@doc.states("each run of a cycle has a row from its start, and the last one that found nothing keeps its row")
async def test_idle_and_running_runs(database: str, ledger: Ledger) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def act(tick: Tick) -> Counts:
        began.set()
        await go.wait()
        return {"licitaciones_found": 0}

    runner = Runner("idle.cycle", act, every=Every(timedelta(hours=1)))
    async with crew(database, runner) as at:
        first = asyncio.create_task(at.ticker.tick(runner, PLENTY))
        async with asyncio.timeout(SOON):
            await began.wait()
        [row] = ledger.rows(RUN, "idle.cycle")
        assert (row[0], row[5], row[6]) == (None, None, at.database.worker)
        go.set()
        await first
        started = [row[4]]
        for _ in range(3):
            make_due(ledger.conn, "idle.cycle")
            assert (await at.ticker.tick(runner, PLENTY)).outcome == "completed"
            *yesterday, row = ledger.rows(RUN, "idle.cycle")
            assert len(yesterday) < 2
            assert (row[0], row[1]) == ("completed", {"licitaciones_found": 0})
            started.append(row[4])
    assert started == sorted(set(started)), "the row is of the last run"


@doc.states("a run's counts are recorded by their names")
def test_run_counts(run: tuple[Any, ...]) -> None:
    assert run[1] == {"licitaciones_found": 3, "licitaciones_new": 2, "notifications_sent": 1}


@doc.states("a run that succeeded is observed as a success")
def test_run_success(run: tuple[Any, ...]) -> None:
    assert run[0] == "completed"
    assert run[2:4] == (None, None)


@doc.states("a run that failed is recorded with its error, and its end all the same")
async def test_run_error(app: Holdfast, ledger: Ledger) -> None:
    @app.runner("erring")
    async def cycle(tick: Tick) -> None:
        raise ValueError("no luck")

    await run_tick(application_of(app, fast(tick_runners=("erring",))))
    [(outcome, _, code, error, started, finished, _)] = ledger.rows(RUN, "erring")
    assert (outcome, code, error) == ("failed", "ValueError", "no luck")
    assert started <= finished


@doc.states("tracking is automatic: it wraps every cycle, plain functions too")
async def test_tracking_is_automatic(app: Holdfast, ledger: Ledger) -> None:
    @app.runner("plain.cycle")
    def cycle(tick: Tick) -> Counts:
        return {"done": 1}

    await run_tick(application_of(app, fast(tick_runners=("plain.cycle",))))
    assert [row[0] for row in ledger.rows(RUN, "plain.cycle")] == ["completed"]


@doc.states("cycles speak through the database alone: one enqueues, another worker's jobs go on from there")
async def test_choreography(database: str, ledger: Ledger) -> None:
    ingest, dispatch = Holdfast(database), Holdfast(database)
    sent: list[int] = []
    declared = ingest.declare("push.send", Delivery)

    @ingest.runner("ingest.tenders")
    def cycle(tick: Tick) -> Counts:
        ingest.sync.enqueue(ledger.conn, declared.new({"delivery": 1}))
        return {"new": 1}

    @dispatch.job("push.send")
    async def send(job: Job[Any], delivery: int) -> None:
        sent.append(delivery)

    await run_tick(application_of(ingest, fast(tick_runners=("ingest.tenders",))))
    assert sent == []
    async with dispatch.worker(**QUICK):
        await until(lambda: sent == [1])
