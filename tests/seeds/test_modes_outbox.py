"""Worker Runtime Modes & Outbox Semantics: claiming, the lifecycle, leases, retries, and what is watched."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Fail, Holdfast, Job, Retry, Unique
from holdfast.ops import operations
from holdfast.telemetry import instrument
from tests.kit.asking import Asked, ask
from tests.kit.fleet import SOON
from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.statement import DIFFERENCES, MODES, Document
from tests.kit.waiting import after, until
from tests.kit.workers import Worker, enqueue, job

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

doc = Document(MODES)
ROW = "SELECT status::text, locked_by, attempt FROM holdfast.job WHERE id = %s"


def claimer(ledger: Ledger, kind: str) -> Worker:
    """A worker without an engine: each of its calls is one statement."""
    return Worker(ledger.conn, kind)


@doc.states("a handler that succeeds makes the job SENT, which is called completed", differs=DIFFERENCES)
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


@doc.states("failures wait exponentially longer, from OUTBOX_RETRY_BASE_MS up to OUTBOX_RETRY_MAX_MS")
def test_backoff() -> None:
    assert [Retry().delay(n).total_seconds() for n in range(1, 8)] == [5, 10, 20, 40, 80, 120, 120]


@doc.states("every retry is jittered by up to OUTBOX_RETRY_JITTER_MS")
def test_retry_jitter() -> None:
    assert Retry().jittered(1, random=lambda: 1.0) == timedelta(seconds=5.5)
    assert Retry().jittered(1, random=lambda: 0.0) == timedelta(seconds=5)


@doc.states("a request that is enqueued again while it waits is one job: ensuring is idempotent")
def test_idempotent_request(app: Holdfast, ledger: Ledger) -> None:
    @app.job("invoice.pdf.render.requested")
    async def render(held: Job[Any], invoice: int) -> None: ...

    new = render.new(7).options(unique=Unique("invoice:7"))
    first, second = app.sync.enqueue(ledger.conn, new), app.sync.enqueue(ledger.conn, new)
    assert (first.created, second.created, second.id) == (True, False, first.id)


@doc.states("heavy handlers have a concurrency of their own, below that of the others")
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
    from tests.kit.ledger import Ledger

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
    ("name", "least", "most"),
    [
        doc.case("per-tick processed count is watched", "holdfast_tick_processed_sum", 3, 3),
        doc.case("per-tick duration is watched", "holdfast_tick_duration_seconds_sum", 0.000_001, SOON),
        doc.case("retry churn is watched", "holdfast_retried_total", 1, 1),
        doc.case("the failure rate is watched", "holdfast_dead_letter_total", 1, 1),
    ],
)
def test_watched(measured: CollectorRegistry, name: str, least: float, most: float) -> None:
    samples = [one for family in measured.collect() for one in family.samples if one.name == name]
    found = [one.value for one in samples if one.labels.get("runner") in {"outbox", None}]
    assert least <= sum(found) <= most


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        doc.case("the count of due pending jobs is watched", "holdfast_queue_due", 2, 2),
        doc.case("the age of the oldest pending job is watched", "holdfast_queue_oldest_pending_age_seconds", 60, 600),
    ],
)
async def test_queue_health(app: Holdfast, ledger: Ledger, name: str, least: float, most: float) -> None:
    ledger.do("DELETE FROM holdfast.job WHERE queue = 'health'")
    enqueue(ledger.conn, job("health", queue="health"), job("health", queue="health"))
    ledger.do("UPDATE holdfast.job SET available_at = now() - interval '90 seconds' WHERE queue = 'health'")
    enqueue(ledger.conn, job("health", queue="health", delay=timedelta(hours=1)))
    site = operations(app, timeout=timedelta(seconds=20), public_metrics=True)
    try:
        async with app.worker(**QUICK):

            async def shown() -> bool:
                answered = await ask(site, Asked("GET", "/metrics"))
                families = text_string_to_metric_families(answered.body.decode())
                samples = [one for family in families for one in family.samples if one.name == name]
                return any(least <= one.value <= most for one in samples if one.labels.get("queue") == "health")

            await until(shown)
    finally:
        await site.state.operations.close()
