"""Jobs that take longer than the budgets of a one-shot tick: they complete, or they end as dead letters."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast, Item, Job, Retry
from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from holdfast._model.errors import AbortReason
from tests.kit.fleet import MS, SOON, alone, fast
from tests.kit.statement import MODES, TICK_LIMITS_STARTS, Document

if TYPE_CHECKING:
    import psycopg

    from holdfast._engine.runner import Counts, Tick
    from holdfast._model.settings import Settings
    from tests.kit.fleet import Connect

modes = Document(MODES)

ONCE = Retry(max_attempts=1)
LATER = Retry(max_attempts=2, base=timedelta(hours=1), maximum=timedelta(hours=1))


def short(**changes: Any) -> Settings:
    """Two seconds to start jobs in, and four for all."""
    given = {"tick_runners": ("outbox",), "tick_runner_max": 2_000 * MS, "tick_overall_max": 4_000 * MS}
    return fast(**(given | changes))


def errors(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    found = conn.execute("SELECT last_error_code, last_error FROM holdfast.job_failed ORDER BY id")
    return found.fetchall()


@modes.states("WORKER_TICK_RUNNER_MAX_MS limits what a tick starts: a longer job completes", differs=TICK_LIMITS_STARTS)
async def test_a_job_longer_than_the_budget_of_its_runner_completes(database: str, connect: Connect) -> None:
    app = Holdfast(database)
    gate = asyncio.Event()

    @app.job("long")
    async def long(job: Job[Any]) -> None:
        await gate.wait()

    @app.runner("next")
    async def opens(_: Tick) -> Counts:
        """The next runner has its turn when the budget of the outbox is spent, though a job still runs."""
        gate.set()
        return {"opened": 1}

    conn = connect()
    app.sync.enqueue(conn, long.new())
    result = await run_tick(
        application_of(app, short(tick_runners=alone("outbox", "next"), tick_overall_max=60_000 * MS))
    )
    assert [(each.runner, dict(each.counts)) for each in result.runners] == [
        ("outbox", {"processed": 1, "completed": 1}),
        ("next", {"opened": 1}),
    ]
    assert result.exit_code == 0


@modes.states("a job that outlasts WORKER_TICK_OVERALL_MAX_MS fails by it, and counts", differs=TICK_LIMITS_STARTS)
async def test_what_outlasts_the_whole_tick_is_a_failed_attempt(database: str, connect: Connect) -> None:
    app = Holdfast(database)
    reasons: list[AbortReason | None] = []

    @app.job("endless", retry=ONCE)
    async def endless(job: Job[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(job.signal.reason)

    conn = connect()
    app.sync.enqueue_many(conn, [endless.new()] * 3)
    result = await run_tick(application_of(app, short()))
    assert reasons == [AbortReason.timeout] * 3
    assert (result.runners[0].outcome, dict(result.runners[0].counts)) == (
        "completed",
        {"processed": 3, "failed": 3, "outlasted": 3},
    )
    assert result.exit_code == 1
    ((code, text), *others) = errors(conn)
    assert len(others) == 2
    assert (code, "after 4000 ms: tick_overall_max" in text) == ("TimeoutError", True)
    assert result.seconds < SOON


async def test_it_is_retried_while_attempts_are_left(database: str, connect: Connect) -> None:
    app = Holdfast(database)

    @app.job("endless", retry=LATER)
    async def endless(job: Job[Any]) -> None:
        await asyncio.Event().wait()

    conn = connect()
    app.sync.enqueue(conn, endless.new())
    result = await run_tick(application_of(app, short()))
    assert (result.exit_code, dict(result.runners[0].counts)) == (1, {"processed": 1, "retried": 1, "outlasted": 1})
    assert conn.execute("SELECT status::text, attempt FROM holdfast.job").fetchall() == [("pending", 1)]


async def test_what_has_not_started_is_given_back_uncounted(database: str, connect: Connect) -> None:
    app = Holdfast(database)

    @app.job("endless", retry=LATER)
    async def endless(job: Job[Any]) -> None:
        await asyncio.Event().wait()

    conn = connect()
    app.sync.enqueue_many(conn, [endless.new()] * 50)
    result = await run_tick(application_of(app, short(concurrency=4, batch_size=50)))
    assert result.runners[0].counts["outlasted"] == 4
    left = "SELECT status::text, attempt, count(*) FROM holdfast.job GROUP BY 1, 2 ORDER BY 2"
    assert conn.execute(left).fetchall() == [("pending", 0, 46), ("pending", 1, 4)]


async def test_a_thread_that_ignores_its_signal_is_a_failed_attempt_too(database: str, connect: Connect) -> None:
    app = Holdfast(database)
    stubborn = threading.Event()

    @app.job("deaf", retry=ONCE)
    def unaware(job: Job[Any]) -> None:
        stubborn.wait()

    conn = connect()
    app.sync.enqueue(conn, unaware.new())
    try:
        result = await run_tick(application_of(app, short(shutdown_timeout=12_000 * MS)))
    finally:
        stubborn.set()
    assert (result.exit_code, dict(result.runners[0].counts)) == (1, {"processed": 1, "failed": 1, "outlasted": 1})
    ((code, text),) = errors(conn)
    assert (code, "tick_overall_max" in text) == ("TimeoutError", True)
    assert result.seconds < 10, "the tick does not wait for the thread"


async def test_each_job_of_a_batch_that_outlasts_the_tick_is_a_failed_attempt(database: str, connect: Connect) -> None:
    app = Holdfast(database)

    @app.batch("endless", size=5, retry=ONCE)
    async def endless(items: list[Item[dict[str, int]]]) -> None:
        await asyncio.Event().wait()

    conn = connect()
    app.sync.enqueue_many(conn, [endless.new({"number": number}) for number in range(3)])
    result = await run_tick(application_of(app, short()))
    assert dict(result.runners[0].counts) == {"processed": 3, "failed": 3, "outlasted": 3}
    assert {code for code, _ in errors(conn)} == {"TimeoutError"}
