"""A payload that this code cannot read is left to others during a deploy, and while one of them takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast import Holdfast, Job
from holdfast._engine import worker
from holdfast._engine.jobs import run_handlers as attempt
from tests.kit.pace import AT_ONCE, QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    import pytest

    from tests.kit.ledger import Ledger


def older(url: str) -> Holdfast:
    app = Holdfast(url)

    @app.job("work", retry=AT_ONCE)
    async def work(_: Job[Any], number: int) -> None: ...

    return app


def newer(url: str) -> Holdfast:
    app = Holdfast(url)

    @app.job("work", retry=AT_ONCE, version=2, queue="elsewhere")
    async def work(_: Job[Any], text: str) -> None: ...

    return app


def enqueue_newer(ledger: Ledger) -> int:
    """Enqueue a job of the newer code, an hour ago."""
    job: int = ledger.value(
        "INSERT INTO holdfast.job (created_at, available_at, queue, kind, payload, payload_version)"
        " VALUES (now() - interval '1 hour', now(), 'default', 'work', '{\"text\": \"a\"}', 2) RETURNING id"
    )
    return job


async def test_the_grace_begins_when_a_version_is_first_seen(
    ledger: Ledger, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is older than the grace."""
    monkeypatch.setattr(attempt, "MISFIT_PAUSE", ms(50))
    monkeypatch.setattr(worker, "DEPLOY_GRACE", 1.0)
    async with older(database).worker(**QUICK) as old:
        job = enqueue_newer(ledger)
        await until(lambda: old.counts.get("job_released", 0) > 2)
        await until(lambda: ledger.status(job) == "failed")
    assert "newer" in (ledger.job(job).error or "")


async def test_a_version_that_a_live_worker_takes_is_left_to_it(
    ledger: Ledger, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "MISFIT_PAUSE", ms(50))
    monkeypatch.setattr(worker, "DEPLOY_GRACE", 0.1)
    async with (
        newer(database).worker(id="new", queues={"elsewhere": 1}, **QUICK),
        older(database).worker(**QUICK) as old,
    ):
        job = enqueue_newer(ledger)
        await until(lambda: old.counts.get("job_released", 0) > 10)
        assert ledger.status(job) in {"pending", "processing"}
        ledger.do("UPDATE holdfast.worker SET stopped_at = now() WHERE name = 'new'")
        await until(lambda: ledger.status(job) == "failed")
