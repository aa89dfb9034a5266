"""Worker Runtime Modes & Outbox Semantics: the budgets of a one-shot tick, and jobs that outlast them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast import Holdfast, Job, Retry, Settings
from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from tests.kit.pace import QUICK, ms
from tests.kit.statement import DIFFERENCES, MODES, RULES, Document
from tests.kit.waiting import until

if TYPE_CHECKING:
    from holdfast import Tick
    from tests.kit.ledger import Ledger

doc = Document(MODES)


@doc.states("WORKER_TICK_RUNNERS as listed keeps the built-in runners, which follow it", differs=DIFFERENCES)
async def test_built_in_runners_follow(app: Holdfast) -> None:
    order: list[str] = []

    async def cycle(tick: Tick) -> None:
        order.append(tick.name)

    for name in ("invoiceReminders", "classesBilling", "unlisted"):
        app.runner(name)(cycle)
    listed = Settings.load({"WORKER_TICK_RUNNERS": "outbox,invoiceReminders,classesBilling"})
    result = await run_tick(application_of(app, listed))
    assert order == ["invoiceReminders", "classesBilling"]
    assert [ticked.runner for ticked in result.runners][3:] == ["schedules", "reaper", "bulk_actions", "maintenance"]
    off = Settings.load({"WORKER_TICK_RUNNERS": "classesBilling,-schedules,-bulk_actions,-maintenance"})
    result = await run_tick(application_of(app, off))
    assert [ticked.runner for ticked in result.runners] == ["classesBilling", "reaper"]


@Document(RULES).states("RULE-020-051: a job that was aborted by its limit is counted, and its error names the limit")
async def test_limit_is_named(app: Holdfast, ledger: Ledger) -> None:
    @app.job("limited", retry=Retry(1), max_runtime=ms(300))
    async def act(job: Job[Any]) -> None:
        await asyncio.Event().wait()

    one = ledger.enqueue_one(act.new())
    async with app.worker(**QUICK):
        await until(lambda: ledger.status(one) == "failed")
    assert ledger.job(one).attempt == 1
    assert "max_runtime of 0.3 s" in str(ledger.job(one).error)
