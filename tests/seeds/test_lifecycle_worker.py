"""Outbox Worker Lifecycle: the variables, the way of a job, recovery, retries and dead letters."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast, Job, Retry, Settings, SettingsError
from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from tests.kit.fleet import fast
from tests.kit.pace import AT_ONCE, ms
from tests.kit.statement import DIFFERENCES, LIFECYCLE, MODES, Document
from tests.kit.waiting import serving, until
from tests.kit.workers import RETRIED, Worker, enqueue, expire_leases, job

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

modes = Document(MODES)
doc = Document(LIFECYCLE)


@doc.states("OUTBOX_WORKER_ENABLED switches the worker on")
def test_enabling() -> None:
    settings = Settings.load({"OUTBOX_WORKER_ENABLED": "true"})
    assert settings.worker_enabled
    assert settings.sources["HOLDFAST_WORKER_ENABLED"] == "alias OUTBOX_WORKER_ENABLED"


@doc.states("OUTBOX_WORKER_BATCH_SIZE: jobs per claim")
async def test_batch_size(app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_WORKER_BATCH_SIZE", "20")
    tokens = Counter[int]()

    @app.job("batched", queue="batched")
    async def act(job: Job[Any]) -> None:
        tokens[job.token] += 1

    ledger.enqueue(*[act.new() for _ in range(60)])
    async with app.worker(queues={"batched": 60}):
        await until(lambda: tokens.total() == 60)
    assert max(tokens.values()) == 20


@pytest.mark.parametrize(
    ("prefix", "attempts"),
    [
        doc.case("OUTBOX_WORKER_MAX_ATTEMPTS: attempts in all", "OUTBOX_WORKER", 8),
        modes.case("attempts are capped by OUTBOX_MAX_ATTEMPTS", "OUTBOX", 2),
    ],
)
async def test_max_attempts(
    app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, prefix: str, attempts: int
) -> None:
    for variable, given in (("MAX_ATTEMPTS", str(attempts)), ("RETRY_BASE_MS", "0"), ("RETRY_MAX_MS", "0")):
        monkeypatch.setenv(f"{prefix}_{variable}", given)
    monkeypatch.setenv("OUTBOX_RETRY_JITTER_MS", "0")

    @app.job(f"fails.{prefix}")
    async def act(job: Job[Any]) -> None:
        raise ValueError("no")

    one = app.sync.enqueue(ledger.conn, act.new()).id
    async with app.worker():
        await until(lambda: ledger.status(one) == "failed")
    assert ledger.job(one).attempt == attempts


@pytest.mark.parametrize(
    ("variable", "milliseconds", "attempt"),
    [
        doc.case("OUTBOX_WORKER_RETRY_BASE_MS: the first retry's delay", "OUTBOX_WORKER_RETRY_BASE_MS", 90_000, 1),
        doc.case("OUTBOX_WORKER_RETRY_MAX_MS: the longest delay", "OUTBOX_WORKER_RETRY_MAX_MS", 30_000, 7),
    ],
)
async def test_retry_variables(  # noqa: PLR0917 - fixtures are arguments
    app: Holdfast,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    milliseconds: int,
    attempt: int,
) -> None:
    monkeypatch.setenv("OUTBOX_WORKER_MAX_ATTEMPTS", "8")
    monkeypatch.setenv(variable, str(milliseconds))

    @app.job(f"fails.{variable}")
    async def act(job: Job[Any]) -> None:
        raise ValueError("no")

    one = app.sync.enqueue(ledger.conn, act.new()).id
    ledger.do("UPDATE holdfast.job SET attempt = %s WHERE id = %s", attempt - 1, one)
    await run_tick(application_of(app, Settings.load(os.environ, tick_runners=("outbox",))))
    assert ledger.job(one)[:2] == ("pending", attempt)
    waits = "SELECT available_at - clock_timestamp() FROM holdfast.job WHERE id = %s"
    assert ms(milliseconds) - ms(10_000) < ledger.value(waits, one) <= ms(milliseconds) + ms(1_000)


@doc.states("OUTBOX_WORKER_PROCESSING_TIMEOUT_MS: when a held job is stuck")
async def test_processing_timeout(app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_WORKER_PROCESSING_TIMEOUT_MS", "90000")
    left: list[float] = []

    @app.job("held")
    async def act(job: Job[Any]) -> None:
        lease = "SELECT extract(epoch FROM locked_until - clock_timestamp()) FROM holdfast.job WHERE id = %s"
        left.append(ledger.value(lease, job.id))

    ledger.enqueue(act.new())
    await run_tick(application_of(app, Settings.load(os.environ, tick_runners=("outbox",))))
    assert 80 < left[0] <= 90


@doc.states("OUTBOX_WORKER_POLL_MS: how often it polls")
async def test_poll_ms(app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_WORKER_POLL_MS", "100")
    settings = Settings.load(os.environ)
    assert (settings.idle_min, settings.idle_max, settings.jitter) == (ms(100), ms(100), ms(10))

    @app.job("polled")
    async def act(job: Job[Any]) -> None: ...

    async with app.worker(listen=False) as worker:
        claimer = serving(worker).claimer
        first, began = claimer.claims, time.monotonic()
        await until(lambda: claimer.claims >= first + 10)
        assert time.monotonic() - began < 10, "without a cap the tenth pause alone takes half a minute"
        one = ledger.enqueue_one(act.new())
        await until(lambda: ledger.status(one) == "completed")


@doc.states("of two variables for one thing the first document's wins, and the other is reported", differs=DIFFERENCES)
def test_two_names() -> None:
    settings = Settings.load({"OUTBOX_BATCH_SIZE": "30", "OUTBOX_WORKER_BATCH_SIZE": "20"})
    assert settings.batch_size == 30
    assert any("OUTBOX_WORKER_BATCH_SIZE is not used" in note for note in settings.notes)


@doc.states("the worker in a web process is off by default: what is pending stays pending")
async def test_disabled(app: Holdfast, ledger: Ledger) -> None:
    @app.job("untouched")
    async def act(job: Job[Any]) -> None: ...

    one = ledger.enqueue_one(act.new())
    workers = ledger.value("SELECT count(*) FROM holdfast.worker")
    async with app.embedded_worker():
        assert ledger.status(one) == "pending"
    assert ledger.value("SELECT count(*) FROM holdfast.worker") == workers, "none was started"


@doc.states("the worker in a web process runs when OUTBOX_WORKER_ENABLED is true")
async def test_enabled(app: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.job("touched")
    async def act(job: Job[Any]) -> None: ...

    monkeypatch.setenv("OUTBOX_WORKER_ENABLED", "true")
    one = ledger.enqueue_one(act.new())
    async with app.embedded_worker():
        await until(lambda: ledger.status(one) == "completed")


ALONE = """
import asyncio, sys
from holdfast import Holdfast, Job
app = Holdfast(sys.argv[1])
ended = asyncio.Event()
@app.job("plain")
async def act(job: Job) -> None:
    ended.set()
async def main() -> None:
    async with app.worker():
        await ended.wait()
    print(sorted({"starlette", "uvicorn", "http.server"} & sys.modules.keys()))
asyncio.run(main())
"""


@doc.states("the worker is a service of its own that runs without HTTP")
def test_no_http(database: str, ledger: Ledger) -> None:
    ledger.do("SELECT holdfast.enqueue('plain')")
    one = ledger.value("SELECT max(id) FROM holdfast.job WHERE kind = 'plain'")
    worker = subprocess.run(  # noqa: S603 - a worker of the test's own
        [sys.executable, "-c", ALONE, database], capture_output=True, text=True, timeout=60, check=True
    )
    assert worker.stdout == "[]\n"
    assert ledger.status(one) == "completed"


@doc.states("the lock of a claim is atomic: of two workers one gets the job")
async def test_atomic_claim(ledger: Ledger) -> None:
    ids = enqueue(ledger.conn, *[job("atomic") for _ in range(40)])

    def claim() -> list[int]:
        with psycopg.connect(ledger.url, autocommit=True) as conn:
            worker = Worker(conn, "atomic")
            return [each.id for _ in range(4) for each in worker.claim(10)]

    taken = [one for part in await asyncio.gather(*[asyncio.to_thread(claim) for _ in range(4)]) for one in part]
    assert sorted(taken) == ids, "all of them, and each by one worker"


@doc.states("recovery works after a restart of the process: another worker recovers what the old one held")
async def test_recovery_after_restart(app: Holdfast, ledger: Ledger) -> None:
    @app.job("restarted", retry=AT_ONCE)
    async def act(job: Job[Any]) -> None: ...

    one = ledger.enqueue_one(act.new())
    expire_leases(ledger.conn, Worker(ledger.conn, "restarted").claim())
    await run_tick(application_of(app, fast(tick_runners=("reaper", "outbox"), retry=AT_ONCE)))
    assert ledger.job(one)[:2] == ("completed", 2)


@modes.states("a failed attempt sends the job back to pending, due after the retry's delay")
@doc.states("a transient error makes the job pending with one more attempt and a next attempt time")
async def test_transient(app: Holdfast, ledger: Ledger) -> None:
    @app.job("transient", retry=Retry(3, base=timedelta(hours=1), maximum=timedelta(hours=1)))
    async def act(job: Job[Any]) -> None:
        raise ConnectionError("away")

    one = ledger.enqueue_one(act.new())
    await run_tick(application_of(app, fast(tick_runners=("outbox",))))
    assert ledger.job(one)[:2] == ("pending", 1)
    wait = "SELECT available_at - clock_timestamp() FROM holdfast.job WHERE id = %s"
    assert ledger.value(wait, one) > timedelta(minutes=50)


@doc.states("an error at the last attempt makes the job failed: a dead letter that is kept")
async def test_dead_letter(app: Holdfast, ledger: Ledger) -> None:
    @app.job("terminal", retry=AT_ONCE)
    async def act(job: Job[Any], n: int) -> None:
        raise ConnectionError("away")

    one = ledger.enqueue_one(act.new(7))
    for _ in range(3):
        await run_tick(application_of(app, fast(tick_runners=("outbox",))))
    kept = "SELECT status::text, attempt, payload FROM holdfast.job_failed WHERE id = %s"
    assert ledger.rows(kept, one) == [("failed", 3, {"n": 7})]


@doc.states("retry delays do not grow without control: they are capped")
def test_capped_delay() -> None:
    assert max(Retry(1000).delays()) == 120_000
    with pytest.raises(SettingsError, match="OUTBOX_RETRY_MAX_MS"):
        Settings.load({"OUTBOX_RETRY_MAX_MS": str(10**12)})


@doc.states("attempts are limited: a job that says nothing of them has three")
def test_limited_attempts(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("limited"))
    assert ledger.value("SELECT max_attempts FROM holdfast.job WHERE id = %s", one) == 3
    worker = Worker(ledger.conn, "limited")
    for _ in range(3):
        expire_leases(ledger.conn, worker.claim())
        worker.reap()
    assert ledger.job(one)[:2] == ("failed", 3)


@doc.states("last_error is normalized: one line, and cut to a bound")
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


@doc.states("last_error carries no secret")
async def test_no_secret(app: Holdfast, ledger: Ledger) -> None:
    @app.job("leaking", retry=Retry(1))
    async def act(job: Job[Any]) -> None:
        raise ConnectionError("cannot reach postgresql://app:hunter2@db/app")

    one = ledger.enqueue_one(act.new())
    await run_tick(application_of(app, fast(tick_runners=("outbox",))))
    assert "hunter2" not in str(ledger.job(one).error)


@doc.states("retries are deterministic under test: the same failures give the same rows")
def test_deterministic(ledger: Ledger) -> None:
    ids = enqueue(ledger.conn, *[job("determined", max_attempts=2) for _ in range(3)])
    worker = Worker(ledger.conn, "determined")
    worker.end(worker.claim(), RETRIED)
    assert [ledger.job(one)[:2] for one in ids] == [("pending", 1)] * 3
    worker.end(worker.claim())
    assert [ledger.job(one)[:2] for one in ids] == [("completed", 2)] * 3
