"""020 - Processing and Lease Rules, sections 3 and 5: the reaper, concurrency and backpressure."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from holdfast import Busy, Holdfast, Job, Retry, Settings, SettingsError
from holdfast._drivers import run_sync
from holdfast._store.worker import register_worker
from holdfast.ops import operations
from holdfast.telemetry import instrument
from tests.kit.asking import Asked, ask
from tests.kit.ledger import Ledger
from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.statement import DIFFERENCES, RULES, Document
from tests.kit.waiting import after, until
from tests.kit.workers import Worker, enqueue, expire_leases, job

doc = Document(RULES)


@doc.states("RULE-020-020: every worker runs a reaper, continuously")
async def test_reaper_runs(app: Holdfast, ledger: Ledger) -> None:
    reaped = "SELECT reaped_at FROM holdfast.worker WHERE name = 'reaping'"
    async with app.worker(id="reaping", tick_runners=("outbox",), **(QUICK | {"reap_interval": ms(20)})):
        await until(lambda: ledger.rows(reaped) and ledger.value(reaped) is not None)
        first = ledger.value(reaped)
        await until(lambda: ledger.value(reaped) > first)


@doc.states("RULE-020-020: the absence of a reaper is a deployment blocker: readiness says so")
async def test_no_reaper(app: Holdfast, ledger: Ledger) -> None:
    ledger.do("UPDATE holdfast.worker SET stopped_at = now() WHERE stopped_at IS NULL")
    run_sync(ledger.conn, register_worker("alive", queues=["default"], kinds=[]))
    ledger.do("UPDATE holdfast.worker SET started_at = now() - interval '1 hour' WHERE name = 'alive'")
    site = operations(app, timeout=timedelta(seconds=20))
    try:
        answered = await ask(site, Asked("GET", "/ready"))
    finally:
        await site.state.operations.close()
    assert answered.status == 503
    assert ("no_reaper", True) in {(each["code"], each["deployment_blocker"]) for each in answered.json["problems"]}


@pytest.mark.parametrize(
    ("attempt", "waits"),
    [
        doc.case("RULE-020-021: a reaped job is available at once", 1, timedelta(0)),
        doc.case("a job that loses its worker again waits its retry delay", 2, timedelta(hours=1), differs=DIFFERENCES),
    ],
)
def test_reaped_at_once(ledger: Ledger, attempt: int, waits: timedelta) -> None:
    [one] = enqueue(ledger.conn, job("soon"))
    worker = Worker(ledger.conn, "soon")
    claimed = worker.claim()
    ledger.do("UPDATE holdfast.job SET attempt = %s WHERE id = %s", attempt, one)
    expire_leases(ledger.conn, claimed)
    with ledger.conn.transaction():
        worker.reap(Retry(base=timedelta(hours=1), maximum=timedelta(hours=1), factor=1, jitter=0))
        due = ledger.value("SELECT available_at - now() FROM holdfast.job WHERE id = %s", one)
    assert waits <= due < waits + timedelta(minutes=1)


@doc.states(
    "RULE-020-021: a job whose attempts are used up is failed by the reaper, not tried for ever", differs=DIFFERENCES
)
def test_reaper_fails(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("used.up", max_attempts=1))
    worker = Worker(ledger.conn, "used.up")
    expire_leases(ledger.conn, worker.claim())
    worker.reap()
    assert ledger.status(one) == "failed"


@pytest.mark.parametrize(
    ("environ", "interval"),
    [
        doc.case("RULE-020-022: the reaper runs every 10 s by default", {}, 10_000),
        doc.case("RULE-020-022: every 5 s for a high volume", {"OUTBOX_REAP_INTERVAL_MS": "5000"}, 5_000),
        doc.case("RULE-020-022: every 30 s for a low volume", {"OUTBOX_REAP_INTERVAL_MS": "30000"}, 30_000),
    ],
)
def test_reap_interval(environ: dict[str, str], interval: int) -> None:
    assert Settings.load(environ).reap_interval == ms(interval)


@doc.states("RULE-020-022: an interval that is not below the lease is refused")
def test_reap_below_lease() -> None:
    with pytest.raises(SettingsError, match=r"OUTBOX_REAP_INTERVAL_MS .* must be below"):
        Settings.load({"OUTBOX_REAP_INTERVAL_MS": "60000", "OUTBOX_LEASE_DURATION_MS": "60000"})


@pytest.fixture(scope="module")
def measured(database: str) -> CollectorRegistry:
    """The metrics of a worker that reaped a job."""
    registry = CollectorRegistry()

    async def work() -> None:
        app = Holdfast(database)

        @app.job("measured", retry=AT_ONCE)
        async def act(job: Job[Any]) -> None: ...

        instrument(app, registry=registry)
        with Ledger(database) as ledger:
            one = ledger.enqueue_one(act.new())
            expire_leases(ledger.conn, Worker(ledger.conn, "measured").claim(), seconds=7)
            async with app.worker(id="measuring", **QUICK):
                await until(lambda: ledger.status(one) == "completed")

    asyncio.run(work())
    return registry


def sample(registry: CollectorRegistry, name: str) -> float:
    return sum(one.value for family in registry.collect() for one in family.samples if one.name == name)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        doc.case("RULE-020-023: reaper.recovered.count: jobs recovered", "holdfast_reaper_recovered_count_total", 1),
        doc.case(
            "RULE-020-023: reaper.stale.duration: for how long they were stuck",
            "holdfast_reaper_stale_duration_seconds_sum",
            7,
        ),
        doc.case("RULE-020-023: reaper.runs.total: passes of the reaper", "holdfast_reaper_runs_total", 1),
    ],
)
def test_reaper_metrics(measured: CollectorRegistry, name: str, least: float) -> None:
    assert sample(measured, name) >= least


@doc.states("RULE-020-032: metrics carry the worker's id")
def test_metric_tag(measured: CollectorRegistry) -> None:
    tags = {one.labels.get("worker") for family in measured.collect() for one in family.samples}
    assert "measuring" in tags


@doc.states("RULE-020-041: parallel events per worker are bounded, by default 10")
async def test_concurrency(app: Holdfast, ledger: Ledger) -> None:
    running, go = list[int](), asyncio.Event()

    @app.job("crowd")
    async def act(job: Job[Any]) -> None:
        running.append(job.id)
        await go.wait()

    ids = ledger.enqueue(*[act.new() for _ in range(25)])
    async with app.worker(**QUICK):
        await until(lambda: len(running) == 10)
        await after(0.05)
        assert len(running) == 10
        go.set()
        await until(lambda: all(ledger.status(one) == "completed" for one in ids))


@doc.states("RULE-020-041: the database connections of a worker are limited")
async def test_connections(app: Holdfast, ledger: Ledger) -> None:
    go = asyncio.Event()

    @app.job("connected")
    async def act(job: Job[Any]) -> None:
        await go.wait()

    ids = ledger.enqueue(*[act.new() for _ in range(100)])
    limit = 0
    async with app.worker(**QUICK):
        while any(ledger.status(one) != "completed" for one in ids):
            limit = max(limit, ledger.sessions())
            go.set()
            await asyncio.sleep(0)
    assert 0 < limit <= Settings.load({}).max_connections


@doc.states("RULE-020-042: no more is held in memory than a small buffer beyond what runs")
async def test_bounded_memory(app: Holdfast, ledger: Ledger) -> None:
    go = asyncio.Event()

    @app.job("flood", queue="flood")
    async def act(job: Job[Any]) -> None:
        await go.wait()

    ids = ledger.enqueue(*[act.new() for _ in range(300)])
    held = "SELECT count(*) FROM holdfast.job WHERE kind = 'flood' AND status = 'processing'"
    async with app.worker(queues={"flood": 2}, **(QUICK | {"shutdown_timeout": ms(0)})):
        await until(lambda: ledger.value(held) >= 2)
        await after(0.1)
        assert ledger.value(held) <= 2 + Settings.load({}).batch_size
    ledger.do("DELETE FROM holdfast.job WHERE id = ANY (%s)", ids)


@doc.states("RULE-020-042: a saturated downstream pauses its queue, and the job goes back uncounted")
async def test_backpressure(app: Holdfast, ledger: Ledger) -> None:
    ran: list[float] = []

    @app.job("saturated", queue="saturated")
    async def act(job: Job[Any]) -> None:
        ran.append(time.monotonic())
        if len(ran) == 1:
            raise Busy(ms(300))

    async with app.worker(queues={"saturated": 1}, **QUICK):
        ids = ledger.enqueue(*[act.new() for _ in range(3)])
        await until(lambda: len(ran) == 1)
        await until(lambda: all(ledger.status(one) == "completed" for one in ids))  # and resumes
    assert {ledger.job(one).attempt for one in ids} == {1}
    assert ran[1] - ran[0] >= 0.299, "no other job of the queue started meanwhile"
