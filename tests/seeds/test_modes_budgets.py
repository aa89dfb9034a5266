"""Worker Runtime Modes & Outbox Semantics: the budgets of a one-shot tick, and jobs that outlast them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast import AbortReason, Holdfast, Job, Retry
from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from tests.engine.fleet import fast
from tests.engine.pace import QUICK, ms
from tests.engine.waiting import until
from tests.seeds.statement import DIFFERENCES, MODES, RULES, TICK_LIMITS_STARTS, Document

if TYPE_CHECKING:
    import pytest

    from holdfast import Counts, Tick
    from tests.engine.ledger import Ledger

doc = Document(MODES)


@doc.says("WORKER_TICK_RUNNER_MAX_MS limits what a tick starts: a longer job completes", differs=TICK_LIMITS_STARTS)
async def test_a_longer_job(app: Holdfast, ledger: Ledger) -> None:
    gate = asyncio.Event()

    @app.job("longer")
    async def act(job: Job[Any]) -> None:
        await gate.wait()

    @app.runner("opener")
    async def opens(tick: Tick) -> Counts:
        """Has its turn when the budget of the outbox is spent."""
        gate.set()
        return {"opened": 1}

    one = ledger.enqueue_one(act.new())
    result = await run_tick(application_of(app, fast(tick_runners=("outbox", "opener"), tick_runner_max=ms(500))))
    assert ledger.job(one)[:2] == ("completed", 1)
    assert result.exit_code == 0


@doc.says("a job that outlasts WORKER_TICK_OVERALL_MAX_MS fails by it, and counts", differs=TICK_LIMITS_STARTS)
async def test_an_endless_job(app: Holdfast, ledger: Ledger) -> None:
    reasons: list[Any] = []

    @app.job("endless", retry=Retry(1))
    async def act(job: Job[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(job.signal.reason)

    one = ledger.enqueue_one(act.new())
    budgets = {"tick_runner_max": ms(1_000), "tick_overall_max": ms(2_000)}
    result = await run_tick(application_of(app, fast(tick_runners=("outbox",), **budgets)))
    assert reasons == [AbortReason.timeout]
    assert ledger.job(one)[:2] == ("failed", 1)
    assert "tick_overall_max" in str(ledger.job(one).error)
    assert result.exit_code == 1


@doc.says("WORKER_TICK_RUNNERS as listed leaves built-in runners out; a worker warns of it", differs=DIFFERENCES)
async def test_left_out(app: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    async def cycle(tick: Tick) -> None: ...

    for name in ("invoiceReminders", "classesBilling"):
        app.runner(name)(cycle)
    async with app.worker(tick_runners=("outbox", "invoiceReminders", "classesBilling"), **QUICK):
        pass
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    for name in ("maintenance", "schedules", "reaper"):
        assert any(name in message for message in warned)


@Document(RULES).says("RULE-020-051: a job that was aborted by its limit is counted, and its error names the limit")
async def test_limit_is_named(app: Holdfast, ledger: Ledger) -> None:
    @app.job("limited", retry=Retry(1), max_runtime=ms(300))
    async def act(job: Job[Any]) -> None:
        await asyncio.Event().wait()

    one = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(one) == "failed")
    assert ledger.job(one).attempt == 1
    assert "max_runtime of 0.3 s" in str(ledger.job(one).error)
