"""How often a job is tried and how long it waits, where its kind does not say."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Event, Holdfast, Job, Retry
from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from holdfast._model.settings import Settings, SettingsError
from holdfast.testing import Testing
from tests.kit.pace import PATIENT, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from tests.kit.ledger import Ledger

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
EXPIRE = (
    "UPDATE holdfast.job SET status = 'processing', attempt = 2, locked_by = 0, lock_token = 1, "
    "locked_until = now() - interval '1 second' WHERE kind = %s"
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MAX_ATTEMPTS": "7", "BASE_MS": "3600000", "MAXIMUM_MS": "3600000", "JITTER_MS": "0"}.items():
        monkeypatch.setenv(f"HOLDFAST_RETRY_{name}", value)


def waits(ledger: Ledger, job: int) -> timedelta:
    """Return for how long from now this job waits."""
    wait: timedelta = ledger.value("SELECT available_at - now() FROM holdfast.job WHERE id = %s", job)
    return wait


async def test_a_kind_that_names_no_policy_has_that_of_the_settings(app: Holdfast, ledger: Ledger) -> None:
    @app.job("plain")
    async def plain(job: Job[None]) -> None:
        raise ConnectionError

    @app.job("own", retry=Retry(2, base=DAY, maximum=DAY))
    async def own(job: Job[None]) -> None:
        raise ConnectionError

    one, other = ledger.enqueue(plain.new(), own.new())
    async with app.worker(**PATIENT) as worker:
        await until(lambda: worker.counts.get("job_retried") == 2)
    assert HOUR / 2 < waits(ledger, one) <= HOUR
    assert HOUR < waits(ledger, other) <= DAY + ms(500)
    attempts = "SELECT kind, max_attempts FROM holdfast.job ORDER BY id"
    assert ledger.rows(attempts) == [("plain", 7), ("own", 2)]


async def test_the_retry_policy_of_a_worker_in_code_wins(app: Holdfast, ledger: Ledger) -> None:
    @app.job("plain")
    async def plain(job: Job[None]) -> None:
        raise ConnectionError

    job = ledger.enqueue_one(plain.new())
    async with app.worker(retry=Retry(base=DAY, maximum=DAY, jitter=0), **PATIENT) as worker:
        await until(lambda: worker.counts.get("job_retried") == 1)
    assert HOUR < waits(ledger, job) <= DAY


async def test_the_reaper_uses_the_same_delay(app: Holdfast, ledger: Ledger) -> None:
    @app.job("plain")
    async def plain(job: Job[None]) -> None: ...

    job = ledger.enqueue_one(plain.new())
    ledger.do(EXPIRE, "plain")
    async with app.worker(**PATIENT):
        await until(lambda: ledger.status(job) == "pending")
    assert HOUR / 2 < waits(ledger, job) <= HOUR


async def test_the_reaper_of_unserved_kinds_uses_the_policy_too(app: Holdfast, ledger: Ledger) -> None:
    elsewhere = app.declare("elsewhere", dict[str, int])
    job = ledger.enqueue_one(elsewhere.new({}))
    ledger.do(EXPIRE, "elsewhere")
    await run_tick(
        application_of(app, Settings.load({"HOLDFAST_RETRY_BASE_MS": "100000", "HOLDFAST_TICK_RUNNERS": "reaper"}))
    )
    assert ms(10_000) < waits(ledger, job) <= ms(120_500)


def test_the_environment_is_read_when_the_first_job_is_made(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.job("plain")
    async def plain(job: Job[None]) -> None: ...

    elsewhere = app.declare("elsewhere", dict[str, int])
    monkeypatch.setenv("HOLDFAST_RETRY_MAX_ATTEMPTS", "8")
    assert plain.new().as_json() == '{"kind":"plain","max_attempts":8,"payload":{}}'
    assert elsewhere.new({}).envelope.max_attempts == 8
    assert app.declare("other", dict[str, int], max_attempts=3).new({}).envelope.max_attempts == 3
    assert plain.new().options(max_attempts=2).envelope.max_attempts == 2
    monkeypatch.setenv("HOLDFAST_RETRY_MAX_ATTEMPTS", "often")
    with pytest.raises(SettingsError, match="HOLDFAST_RETRY_MAX_ATTEMPTS must be a whole number"):
        app.declare("late", dict[str, int]).new({})


async def test_jobs_made_of_events_have_as_many_attempts(app: Holdfast, ledger: Ledger) -> None:
    noted = app.event("said", dict[str, int])

    @app.on(noted, name="hear", start="beginning")
    async def note(job: Job[None], event: Event[dict[str, int]]) -> None:
        raise ConnectionError

    app.sync.publish(ledger.conn, noted.new({}))
    async with app.worker(**PATIENT) as worker:
        await until(lambda: worker.counts.get("job_retried") == 1)
    assert ledger.value("SELECT max_attempts FROM holdfast.job") == 7


def test_the_kit_for_tests_too(app: Holdfast, connect: Callable[..., psycopg.Connection[object]]) -> None:
    @app.job("plain")
    def plain(job: Job[None]) -> None:
        raise ConnectionError

    conn = connect()
    kit = Testing(app, conn)
    assert kit.sync.run_job(plain.new(), raise_errors=False).outcome == "retry"
    kit.sync.travel(HOUR - timedelta(minutes=1))
    assert len(kit.sync.drain(raise_errors=False)) == 0
    kit.sync.travel(timedelta(minutes=1))
    assert len(kit.sync.drain(raise_errors=False)) == 1
