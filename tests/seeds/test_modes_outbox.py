"""Worker Runtime Modes & Outbox Semantics: claiming, the lifecycle, leases, retries, and what is watched."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Fail, Holdfast, Job, Retry, Unique
from holdfast.ops import operations
from holdfast.telemetry import instrument
from tests.engine.fleet import SOON
from tests.engine.pace import AT_ONCE, QUICK, ms
from tests.engine.waiting import after, until
from tests.ops.asking import Asked, ask
from tests.seeds.statement import DIFFERENCES, MODES, Document
from tests.traps.workers import Worker, enqueue, expire_leases, job

if TYPE_CHECKING:
    from tests.engine.ledger import Ledger

doc = Document(MODES)
ROW = "SELECT status::text, locked_by, attempt FROM holdfast.job WHERE id = %s"


def claimer(ledger: Ledger, kind: str) -> Worker:
    """A worker without an engine: each of its calls is one statement."""
    return Worker(ledger.conn, kind)


@doc.says("a claim does not wait for rows that another transaction has locked: SKIP LOCKED")
def test_skip_locked(ledger: Ledger) -> None:
    locked, free = enqueue(ledger.conn, job("skip"), job("skip"))
    with psycopg.connect(ledger.url) as other:
        other.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [locked])
        ledger.do("SET statement_timeout = '10s'")
        assert [each.id for each in claimer(ledger, "skip").claim()] == [free]


@doc.says("a claim sets the status to processing and lockedBy to the worker")
def test_locked_by(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("by"))
    worker = claimer(ledger, "by")
    worker.claim()
    assert ledger.rows(ROW, one) == [("processing", worker.id, 1)]


@doc.says("a claim sets lockedUntil to now and the lease duration")
def test_locked_until(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("until"))
    before = ledger.value("SELECT clock_timestamp()")
    claimer(ledger, "until").claim()
    until, after = ledger.rows("SELECT locked_until, clock_timestamp() FROM holdfast.job WHERE id = %s", one)[0]
    lease = timedelta(seconds=60)
    assert before + lease <= until <= after + lease


@doc.says("the claim's transaction is over before the handler runs")
async def test_outside_the_claim(app: Holdfast, ledger: Ledger) -> None:
    seen: list[Any] = []

    @app.job("outside")
    async def act(held: Job[Any]) -> None:
        seen.extend(ledger.rows(ROW, held.id))  # another connection sees the claim: it is committed
        seen.append(ledger.value("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%'"))

    one = ledger.enqueue_one(act.new())
    async with app.worker(tick_runners=("outbox",), **QUICK):
        await until(lambda: ledger.status(one) == "completed")
    assert seen[0][0] == "processing"
    assert seen[1] == 0


@doc.says("a pending job waits until its availableAt")
def test_available_at(ledger: Ledger) -> None:
    later, now = enqueue(ledger.conn, job("available", delay=timedelta(hours=1)), job("available"))
    assert [each.id for each in claimer(ledger, "available").claim()] == [now]
    assert ledger.status(later) == "pending"


@doc.says("a job is processing under one worker only")
def test_one_worker(ledger: Ledger) -> None:
    enqueue(ledger.conn, job("single"))
    first, second = claimer(ledger, "single"), claimer(ledger, "single")
    assert len(first.claim()) == 1
    assert second.claim() == []


@doc.says("a handler that succeeds makes the job SENT, which is called completed", differs=DIFFERENCES)
async def test_sent(app: Holdfast, ledger: Ledger) -> None:
    @app.job("succeeds")
    async def act(held: Job[Any]) -> str:
        return "ok"

    one = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(one) != "pending" and ledger.status(one) != "processing")
    assert ledger.job(one)[:3] == ("completed", 1, "ok")


class HopelessError(Exception):
    retryable = False


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        doc.case("attempts that are used up make a job FAILED", ValueError("no"), 3),
        doc.case("an error with retryable=false fails at once", HopelessError("no"), 1),
        doc.case("a handler can fail for good by itself", Fail("no"), 1),
    ],
)
async def test_failed(app: Holdfast, ledger: Ledger, error: Exception, attempts: int) -> None:
    kind = f"fails.{type(error).__name__}"

    @app.job(kind, retry=AT_ONCE)
    async def act(held: Job[Any]) -> None:
        raise error

    one = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(one) == "failed")
    assert ledger.job(one)[1:5] == (attempts, None, type(error).__name__, "no")


@doc.says("the worker's heartbeat extends the lease while the handler runs")
async def test_heartbeat(app: Holdfast, ledger: Ledger) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    @app.job("beating")
    async def act(held: Job[Any]) -> None:
        began.set()
        await go.wait()

    one = ledger.enqueue_one(act.new())
    lease = "SELECT locked_until FROM holdfast.job WHERE id = %s"
    async with app.worker(**(QUICK | {"heartbeat": ms(100)})):
        async with asyncio.timeout(SOON):
            await began.wait()
        first = ledger.value(lease, one)
        await until(lambda: ledger.value(lease, one) > first)
        go.set()
        await until(lambda: ledger.status(one) == "completed")


@doc.says("a job whose worker crashed is reclaimed by another when the lease has expired")
async def test_reclaim(app: Holdfast, ledger: Ledger) -> None:
    ran: list[int] = []

    @app.job("crashed", retry=AT_ONCE)
    async def act(held: Job[Any]) -> None:
        ran.append(held.attempt)

    one = ledger.enqueue_one(act.new())
    expire_leases(ledger.conn, claimer(ledger, "crashed").claim())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(one) == "completed")
    assert ran == [2]


@doc.says("an unexpired lease is respected: nobody else gets the job")
def test_unexpired(ledger: Ledger) -> None:
    enqueue(ledger.conn, job("respected"))
    holder, other = claimer(ledger, "respected"), claimer(ledger, "respected")
    assert holder.claim()
    assert other.reap() == []
    assert other.claim() == []


@doc.says("failures wait exponentially longer, from OUTBOX_RETRY_BASE_MS up to OUTBOX_RETRY_MAX_MS")
def test_backoff() -> None:
    assert [Retry().delay(n).total_seconds() for n in range(1, 8)] == [5, 10, 20, 40, 80, 120, 120]


@doc.says("every retry is jittered by up to OUTBOX_RETRY_JITTER_MS")
def test_retry_jitter() -> None:
    assert Retry().jittered(1, random=lambda: 1.0) == timedelta(seconds=5.5)
    assert Retry().jittered(1, random=lambda: 0.0) == timedelta(seconds=5)


@doc.says("a failed attempt sends the job back to pending, due after the retry's delay")
async def test_retry_row(app: Holdfast, ledger: Ledger) -> None:
    @app.job("waits", retry=Retry(2, base=timedelta(seconds=100), jitter=ms(0)))
    async def act(held: Job[Any]) -> None:
        raise ValueError("no")

    one = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.job(one)[:2] == ("pending", 1))
    wait = "SELECT extract(epoch FROM available_at - clock_timestamp()) FROM holdfast.job WHERE id = %s"
    assert 60 < ledger.value(wait, one) <= 100


@doc.says("attempts are capped by OUTBOX_MAX_ATTEMPTS")
async def test_max_attempts(app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_MAX_ATTEMPTS", "2")
    monkeypatch.setenv("OUTBOX_RETRY_BASE_MS", "0")
    monkeypatch.setenv("OUTBOX_RETRY_JITTER_MS", "0")

    @app.job("capped")
    async def act(held: Job[Any]) -> None:
        raise ValueError("no")

    one = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(one) == "failed")
    assert ledger.job(one).attempt == 2


@doc.says("delivery is at least once: a handler can tell a repetition by a key that is the same at every attempt")
async def test_idempotency_key(app: Holdfast, ledger: Ledger) -> None:
    keys: list[str] = []

    @app.job("idempotent", retry=AT_ONCE)
    async def act(held: Job[Any]) -> None:
        keys.append(held.idempotency_key)
        if held.attempt < 3:
            raise ValueError("again")

    one = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(one) == "completed")
    assert len(keys) == 3
    assert len(set(keys)) == 1


@doc.says("a request that is enqueued again while it waits is one job: ensuring is idempotent")
def test_idempotent_request(app: Holdfast, ledger: Ledger) -> None:
    @app.job("invoice.pdf.render.requested")
    async def render(held: Job[Any], invoice: int) -> None: ...

    new = render.new(7).options(unique=Unique("invoice:7"))
    first, second = app.sync.enqueue(ledger.conn, new), app.sync.enqueue(ledger.conn, new)
    assert (first.created, second.created, second.id) == (True, False, first.id)


@doc.says("heavy handlers have a concurrency of their own, below that of the others")
async def test_heavy(app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDF_RENDER_CONCURRENCY", "2")
    heavy, light, go = list[int](), list[int](), asyncio.Event()

    @app.job("heavy", queue="pdf")
    async def render(held: Job[Any]) -> None:
        heavy.append(held.id)
        await go.wait()

    @app.job("light")
    async def act(held: Job[Any]) -> None:
        light.append(held.id)
        await go.wait()

    ledger.enqueue(*[render.new() for _ in range(5)], *[act.new() for _ in range(5)])
    async with app.worker(**QUICK):
        await until(lambda: len(light) == 5 and len(heavy) == 2)
        await after(0.05)
        assert len(heavy) == 2
        go.set()
        await until(lambda: len(heavy) == 5)


@pytest.fixture(scope="module")
def measured(database: str) -> CollectorRegistry:
    """The metrics of a worker that completed a job, retried one and made a dead letter of it."""
    from tests.engine.ledger import Ledger

    registry = CollectorRegistry()

    async def work() -> None:
        app = Holdfast(database)

        @app.job("measured", retry=Retry(2, base=ms(0), jitter=ms(0)))
        async def act(held: Job[Any], fail: bool) -> None:
            if fail:
                raise ValueError("no")

        instrument(app, registry=registry)
        with Ledger(database) as ledger:
            ids = ledger.enqueue(act.new(fail=True), act.new(fail=False))
            async with app.worker(**QUICK):
                await until(lambda: {ledger.status(each) for each in ids} == {"failed", "completed"})

    asyncio.run(work())
    return registry


@pytest.mark.parametrize(
    ("name", "least"),
    [
        doc.case("per-tick processed count is watched", "holdfast_tick_processed_count", 1),
        doc.case("per-tick duration is watched", "holdfast_tick_duration_seconds_count", 1),
        doc.case("retry churn is watched", "holdfast_retried_total", 1),
        doc.case("the failure rate is watched", "holdfast_dead_letter_total", 1),
    ],
)
def test_watched(measured: CollectorRegistry, name: str, least: float) -> None:
    found = [one.value for family in measured.collect() for one in family.samples if one.name == name]
    assert sum(found) >= least


@pytest.mark.parametrize(
    ("name", "least"),
    [
        doc.case("the count of due pending jobs is watched", "holdfast_queue_due", 2),
        doc.case("the age of the oldest pending job is watched", "holdfast_queue_oldest_pending_age_seconds", 60),
    ],
)
async def test_queue_health(app: Holdfast, ledger: Ledger, name: str, least: float) -> None:
    enqueue(ledger.conn, job("health", queue="health"), job("health", queue="health"))
    ledger.do("UPDATE holdfast.job SET available_at = now() - interval '90 seconds' WHERE queue = 'health'")
    site = operations(app, timeout=timedelta(seconds=20), public_metrics=True)
    try:
        async with app.worker(**QUICK):

            async def shown() -> bool:
                answered = await ask(site, Asked("GET", "/metrics"))
                families = text_string_to_metric_families(answered.body.decode())
                samples = [one for family in families for one in family.samples if one.name == name]
                return any(one.value >= least for one in samples if one.labels.get("queue") == "health")

            await until(shown)
    finally:
        await site.state.operations.close()
