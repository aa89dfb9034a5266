"""Kinds without a limit of attempts: failing makes no dead letter of their jobs; everything else still ends them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Event, Fail, Holdfast, Job, Retry
from holdfast.testing import Testing
from tests.kit.pace import QUICK, ms
from tests.kit.waiting import until

if TYPE_CHECKING:
    import psycopg

    from tests.kit.ledger import Ledger

ENDLESS = Retry(max_attempts=None, base=ms(0), jitter=ms(0))
LIMITS = "SELECT kind, max_attempts FROM holdfast.job ORDER BY kind"


async def test_a_job_is_retried_until_it_succeeds(
    app: Holdfast, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("sync", retry=ENDLESS)
    async def sync(job: Job[None]) -> int:
        if job.attempt < 12:
            raise ConnectionError("no server")
        return job.attempt

    with caplog.at_level(logging.WARNING, "holdfast"):
        job = ledger.enqueue_one(sync.new())
        async with app.worker(**QUICK):
            await until(lambda: ledger.status(job) == "completed")
    assert ledger.job(job)[:3] == ("completed", 12, 12)
    noted = [line.getMessage() for line in caplog.records if "an attempt failed" in line.getMessage()]
    assert noted
    assert not any("max_attempts" in line or "None" in line for line in noted)


async def test_what_else_ends_a_job_still_does(app: Holdfast, ledger: Ledger) -> None:
    @app.job("refused", retry=ENDLESS)
    async def refused(job: Job[None]) -> None:
        raise Fail("no such customer")

    @app.job("slow", retry=ENDLESS, max_runtime=ms(100))
    async def slow(job: Job[None]) -> None:
        await asyncio.Event().wait()

    gone, late = ledger.enqueue(refused.new(), slow.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(gone) == "failed")
        await until(lambda: ledger.value("SELECT count(*) FROM holdfast.attempt WHERE job_id = %s", late) >= 4)
        ledger.cancel(late)
        await until(lambda: ledger.status(late) == "cancelled")
    code = "SELECT DISTINCT error_code FROM holdfast.attempt WHERE job_id = %s AND outcome = 'retry'"
    assert ledger.rows(code, late) == [("TimeoutError",)]


async def test_jobs_of_events_and_declared_kinds(app: Holdfast, ledger: Ledger) -> None:
    noted = app.event("said", dict[str, int])

    @app.on(noted, name="hear", start="beginning", retry=Retry(max_attempts=None))
    async def note(job: Job[None], event: Event[dict[str, int]]) -> None:
        raise ConnectionError

    elsewhere = app.declare("elsewhere", dict[str, int], max_attempts=None)
    app.sync.publish(ledger.conn, noted.new({}))
    ledger.enqueue(elsewhere.new({}), app.declare("limited", dict[str, int]).new({}))
    async with app.worker(**QUICK) as worker:
        await until(lambda: worker.counts.get("job_retried") == 1)
    assert ledger.rows(LIMITS) == [("elsewhere", None), ("hear", None), ("limited", 3)]


def test_the_kit_for_tests(app: Holdfast, ledger: Ledger) -> None:
    @app.job("sync", retry=ENDLESS)
    async def sync(job: Job[None]) -> None:
        raise ConnectionError

    conn: psycopg.Connection[Any] = ledger.conn
    kit = Testing(app, conn)
    app.sync.enqueue(conn, sync.new())
    kit.sync.assert_enqueued(sync.new().options(max_attempts=None))
    with pytest.raises(AssertionError, match="max_attempts"):
        kit.sync.assert_enqueued(sync.new().options(max_attempts=3))
    with pytest.raises(AssertionError, match="20 attempts were made and more is due"):
        kit.sync.drain(limit=20, raise_errors=False)
