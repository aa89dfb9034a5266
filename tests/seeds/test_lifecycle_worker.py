"""Outbox Worker Lifecycle: the variables, the way of a job, recovery, retries and dead letters."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast, Job, Retry, Settings, SettingsError
from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from tests.engine.fleet import fast
from tests.engine.pace import AT_ONCE, ms
from tests.engine.waiting import until
from tests.seeds.statement import DIFFERENCES, LIFECYCLE, Document
from tests.traps.workers import RETRIED, Worker, enqueue, expire_leases, job

if TYPE_CHECKING:
    from tests.engine.ledger import Ledger

doc = Document(LIFECYCLE)


@pytest.mark.parametrize(
    ("variable", "field", "given", "value"),
    [
        doc.case(
            "OUTBOX_WORKER_ENABLED switches the worker on", "OUTBOX_WORKER_ENABLED", "worker_enabled", "true", True
        ),
        doc.case("OUTBOX_WORKER_POLL_MS: how often it polls", "OUTBOX_WORKER_POLL_MS", "idle_min", "700", ms(700)),
        doc.case("OUTBOX_WORKER_BATCH_SIZE: jobs per claim", "OUTBOX_WORKER_BATCH_SIZE", "batch_size", "20", 20),
        doc.case(
            "OUTBOX_WORKER_MAX_ATTEMPTS: attempts in all", "OUTBOX_WORKER_MAX_ATTEMPTS", "retry.max_attempts", "8", 8
        ),
        doc.case(
            "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS: when a held job is stuck",
            "OUTBOX_WORKER_PROCESSING_TIMEOUT_MS",
            "lease",
            "90000",
            ms(90_000),
        ),
        doc.case(
            "OUTBOX_WORKER_RETRY_BASE_MS: the first retry's delay",
            "OUTBOX_WORKER_RETRY_BASE_MS",
            "retry.base",
            "1000",
            ms(1_000),
        ),
        doc.case(
            "OUTBOX_WORKER_RETRY_MAX_MS: the longest delay",
            "OUTBOX_WORKER_RETRY_MAX_MS",
            "retry.maximum",
            "9000",
            ms(9_000),
        ),
    ],
)
def test_variables(variable: str, field: str, given: str, value: object) -> None:
    settings = Settings.load({variable: given})
    assert attrgetter(field)(settings) == value
    assert any(source.endswith(variable) for source in settings.sources.values())


@doc.says("of two variables for one thing the first document's wins, and the other is reported", differs=DIFFERENCES)
def test_two_names() -> None:
    settings = Settings.load({"OUTBOX_BATCH_SIZE": "30", "OUTBOX_WORKER_BATCH_SIZE": "20"})
    assert settings.batch_size == 30
    assert any("OUTBOX_WORKER_BATCH_SIZE is not used" in note for note in settings.notes)


@doc.says("the worker in a web process is off by default: what is pending stays pending")
async def test_disabled(app: Holdfast, ledger: Ledger) -> None:
    @app.job("untouched")
    async def act(job: Job[Any]) -> None: ...

    one = ledger.enqueue_one(act.new())
    workers = ledger.value("SELECT count(*) FROM holdfast.worker")
    async with app.embedded_worker():
        assert ledger.status(one) == "pending"
    assert ledger.value("SELECT count(*) FROM holdfast.worker") == workers, "none was started"


@doc.says("the worker in a web process runs when OUTBOX_WORKER_ENABLED is true")
async def test_enabled(app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.job("touched")
    async def act(job: Job[Any]) -> None: ...

    monkeypatch.setenv("OUTBOX_WORKER_ENABLED", "true")
    one = ledger.enqueue_one(act.new())
    async with app.embedded_worker():
        await until(lambda: ledger.status(one) == "completed")


@doc.says("the worker is a service of its own that runs without HTTP")
async def test_no_http(app: Holdfast, ledger: Ledger) -> None:
    @app.job("plain")
    async def act(job: Job[Any]) -> None: ...

    one = ledger.enqueue_one(act.new())
    result = await run_tick(application_of(app, fast(tick_runners=("outbox",))))
    assert result.exit_code == 0
    assert ledger.status(one) == "completed"


@doc.says("a claim takes pending jobs whose next attempt is due, and locks them as processing")
def test_claim_due(ledger: Ledger) -> None:
    due, later = enqueue(ledger.conn, job("due"), job("due", delay=timedelta(hours=1)))
    assert [each.id for each in Worker(ledger.conn, "due").claim()] == [due]
    assert (ledger.status(due), ledger.status(later)) == ("processing", "pending")


@doc.says("the lock of a claim is atomic: of two workers one gets the job")
async def test_atomic_claim(ledger: Ledger) -> None:
    ids = enqueue(ledger.conn, *[job("atomic") for _ in range(40)])

    def claim() -> list[int]:
        with psycopg.connect(ledger.url, autocommit=True) as conn:
            return [each.id for each in Worker(conn, "atomic").claim(10)]

    taken = [one for part in await asyncio.gather(*[asyncio.to_thread(claim) for _ in range(4)]) for one in part]
    assert len(taken) == len(set(taken))
    assert set(taken) <= set(ids)


@doc.says("a job stuck in processing goes back to pending after the timeout")
def test_recover_stuck(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("stuck"))
    worker = Worker(ledger.conn, "stuck")
    held = worker.claim()
    assert worker.reap() == [], "not before the timeout"
    expire_leases(ledger.conn, held)
    assert [each.id for each in worker.reap()] == [one]
    assert ledger.status(one) == "pending"


@doc.says("recovery works after a restart of the process: another worker recovers what the old one held")
async def test_recovery_after_restart(app: Holdfast, ledger: Ledger) -> None:
    @app.job("restarted", retry=AT_ONCE)
    async def act(job: Job[Any]) -> None: ...

    one = ledger.enqueue_one(act.new())
    expire_leases(ledger.conn, Worker(ledger.conn, "restarted").claim())
    await run_tick(application_of(app, fast(tick_runners=("reaper", "outbox"), retry=AT_ONCE)))
    assert ledger.job(one)[:2] == ("completed", 2)


@doc.says("success makes the job sent, which is called completed", differs=DIFFERENCES)
def test_success(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("success"))
    worker = Worker(ledger.conn, "success")
    worker.end(worker.claim())
    assert ledger.job(one)[:2] == ("completed", 1)


@doc.says("a transient error makes the job pending with one more attempt and a next attempt time")
async def test_transient(app: Holdfast, ledger: Ledger) -> None:
    @app.job("transient", retry=Retry(3, base=timedelta(hours=1), maximum=timedelta(hours=1)))
    async def act(job: Job[Any]) -> None:
        raise ConnectionError("away")

    one = ledger.enqueue_one(act.new())
    await run_tick(application_of(app, fast(tick_runners=("outbox",))))
    assert ledger.job(one)[:2] == ("pending", 1)
    wait = "SELECT available_at - clock_timestamp() FROM holdfast.job WHERE id = %s"
    assert ledger.value(wait, one) > timedelta(minutes=50)


@doc.says("an error at the last attempt makes the job failed: a dead letter that is kept")
async def test_dead_letter(app: Holdfast, ledger: Ledger) -> None:
    @app.job("terminal", retry=AT_ONCE)
    async def act(job: Job[Any], n: int) -> None:
        raise ConnectionError("away")

    one = ledger.enqueue_one(act.new(7))
    for _ in range(3):
        await run_tick(application_of(app, fast(tick_runners=("outbox",))))
    kept = "SELECT status::text, attempt, payload FROM holdfast.job_failed WHERE id = %s"
    assert ledger.rows(kept, one) == [("failed", 3, {"n": 7})]


@doc.says("retry delays do not grow without control: they are capped")
def test_capped_delay() -> None:
    assert max(Retry(1000).delays()) == 120_000
    with pytest.raises(SettingsError, match="OUTBOX_RETRY_MAX_MS"):
        Settings.load({"OUTBOX_RETRY_MAX_MS": str(10**12)})


@doc.says("attempts are limited: a job that says nothing of them has three")
def test_limited_attempts(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("limited"))
    assert ledger.value("SELECT max_attempts FROM holdfast.job WHERE id = %s", one) == 3
    worker = Worker(ledger.conn, "limited")
    for _ in range(3):
        expire_leases(ledger.conn, worker.claim())
        worker.reap()
    assert ledger.job(one)[:2] == ("failed", 3)


@doc.says("last_error is normalized: one line, and cut to a bound")
async def test_last_error(app: Holdfast, ledger: Ledger) -> None:
    @app.job("verbose", retry=Retry(1))
    async def act(job: Job[Any]) -> None:
        raise ValueError("line\n" * 10_000)

    one = ledger.enqueue_one(act.new())
    await run_tick(application_of(app, fast(tick_runners=("outbox",))))
    found = ledger.job(one)
    assert found.error_code == "ValueError"
    assert found.error is not None
    assert len(found.error) <= 2_000
    assert "\n" not in found.error


@doc.says("last_error carries no secret")
async def test_no_secret(app: Holdfast, ledger: Ledger) -> None:
    @app.job("leaking", retry=Retry(1))
    async def act(job: Job[Any]) -> None:
        raise ConnectionError("cannot reach postgresql://app:hunter2@db/app")

    one = ledger.enqueue_one(act.new())
    await run_tick(application_of(app, fast(tick_runners=("outbox",))))
    assert "hunter2" not in str(ledger.job(one).error)


@doc.says("retries are deterministic under test: the same failures give the same rows")
def test_deterministic(ledger: Ledger) -> None:
    ids = enqueue(ledger.conn, *[job("determined", max_attempts=2) for _ in range(3)])
    worker = Worker(ledger.conn, "determined")
    worker.end(worker.claim(), RETRIED)
    assert [ledger.job(one)[:2] for one in ids] == [("pending", 1)] * 3
    worker.end(worker.claim())
    assert [ledger.job(one)[:2] for one in ids] == [("completed", 2)] * 3
