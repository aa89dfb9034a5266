"""020 - Processing and Lease Rules, sections 3 and 5: the reaper, concurrency and backpressure."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry

from holdfast import Busy, Holdfast, Job, Settings, SettingsError
from holdfast.ops import operations
from holdfast.telemetry import instrument
from tests.engine.ledger import Ledger
from tests.engine.pace import AT_ONCE, QUICK, ms
from tests.engine.waiting import after, until
from tests.ops.asking import Asked, ask
from tests.seeds.statement import DIFFERENCES, RULES, Document
from tests.traps.workers import Worker, enqueue, expire_leases, job

doc = Document(RULES)


@doc.says("RULE-020-020: every worker runs a reaper, continuously")
async def test_reaper_runs(app: Holdfast, ledger: Ledger) -> None:
    reaped = "SELECT reaped_at FROM holdfast.worker WHERE name = 'reaping'"
    async with app.worker(id="reaping", tick_runners=("outbox",), **(QUICK | {"reap_interval": ms(20)})):
        await until(lambda: ledger.rows(reaped) and ledger.value(reaped) is not None)
        first = ledger.value(reaped)
        await until(lambda: ledger.value(reaped) > first)


@doc.says("RULE-020-020: the absence of a reaper is a deployment blocker: readiness says so")
async def test_no_reaper(app: Holdfast, ledger: Ledger) -> None:
    ledger.do("UPDATE holdfast.worker SET stopped_at = now() WHERE stopped_at IS NULL")
    site = operations(app, timeout=timedelta(seconds=20))
    try:
        answered = await ask(site, Asked("GET", "/ready"))
    finally:
        await site.state.operations.close()
    assert answered.status == 503
    assert {"no_worker", "no_reaper"} & {each["code"] for each in answered.json["problems"]}


@doc.says("RULE-020-021: the reaper sets status to pending, locked_until and lock_token to null")
def test_reaper_query(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("reset"))
    worker = Worker(ledger.conn, "reset")
    expire_leases(ledger.conn, worker.claim())
    worker.reap()
    row = "SELECT status::text, locked_until, lock_token, locked_by FROM holdfast.job WHERE id = %s"
    assert ledger.rows(row, one) == [("pending", None, None, None)]


@doc.says("RULE-020-021: the reaper leaves leases alone that have not expired")
def test_reaper_leaves_the_others(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("alive"))
    worker = Worker(ledger.conn, "alive")
    worker.claim()
    assert worker.reap() == []
    assert ledger.status(one) == "processing"


@doc.says("RULE-020-021: what was reaped answers with its ids")
def test_reaper_returns(ledger: Ledger) -> None:
    ids = enqueue(ledger.conn, job("answer"), job("answer"))
    worker = Worker(ledger.conn, "answer")
    expire_leases(ledger.conn, worker.claim())
    assert sorted(each.id for each in worker.reap()) == ids


@doc.says(
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


@doc.says("RULE-020-022: an interval that is not below the lease is refused")
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


@doc.says("RULE-020-032: metrics carry the worker's id")
def test_metric_tag(measured: CollectorRegistry) -> None:
    tags = {one.labels.get("worker") for family in measured.collect() for one in family.samples}
    assert "measuring" in tags


@doc.says("RULE-020-040: workers that claim at the same time do not wait for each other")
def test_skip_locked(ledger: Ledger) -> None:
    first, second = enqueue(ledger.conn, job("concurrent"), job("concurrent"))
    with psycopg.connect(ledger.url) as conn:  # a claim whose transaction stays open
        other = Worker(ledger.conn, "concurrent")
        conn.execute("SET statement_timeout = '10s'")
        assert [each.id for each in Worker(conn, "concurrent").claim(1)] == [first]
        ledger.do("SET statement_timeout = '10s'")
        assert [each.id for each in other.claim(1)] == [second]
        conn.rollback()


@doc.says("RULE-020-041: parallel events per worker are bounded, by default 10")
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


@doc.says("RULE-020-041: the database connections of a worker are limited")
async def test_connections(app: Holdfast, ledger: Ledger) -> None:
    @app.job("connected")
    async def act(job: Job[Any]) -> None: ...

    ids = ledger.enqueue(*[act.new() for _ in range(100)])
    limit = 0
    async with app.worker(**QUICK):
        while any(ledger.status(one) != "completed" for one in ids):
            limit = max(limit, ledger.sessions())
            await asyncio.sleep(0)
    assert 0 < limit <= Settings.load({}).max_connections


@doc.says("RULE-020-042: no more is held in memory than a small buffer beyond what runs")
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


@doc.says("RULE-020-042: a saturated downstream pauses its queue, and the job goes back uncounted")
async def test_backpressure(app: Holdfast, ledger: Ledger) -> None:
    ran: list[int] = []

    @app.job("saturated", queue="saturated")
    async def act(job: Job[Any]) -> None:
        ran.append(job.id)
        if len(ran) == 1:
            raise Busy(ms(300))

    async with app.worker(queues={"saturated": 1}, **QUICK):
        ids = ledger.enqueue(*[act.new() for _ in range(3)])
        await until(lambda: len(ran) == 1)
        await until(lambda: all(ledger.status(one) == "completed" for one in ids))  # and resumes
    assert {ledger.job(one).attempt for one in ids} == {1}
