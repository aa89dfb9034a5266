"""The counts of a tick are recorded however it ended."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, HoldfastError
from holdfast._app.app import application_of
from holdfast._drivers import run_sync
from holdfast._engine.once import run_tick
from holdfast._engine.runner import Counts, Runner, Tick
from holdfast._engine.runners.ticker import Limits
from holdfast._model.errors import AbortReason
from holdfast._model.schedule import Every
from holdfast._store.schedule import register_schedules
from tests.kit.fleet import SOON, crew, fast, runs

if TYPE_CHECKING:
    from tests.kit.fleet import Connect

PLENTY = Limits(None, SOON)
HOURLY = Every(timedelta(hours=1))


async def breaks(tick: Tick) -> Counts:
    tick.count("deleted", 12)
    tick.count("deleted")
    tick.count("skipped", 2)
    raise ValueError("no luck")


@pytest.mark.parametrize("every", [None, HOURLY], ids=["loop", "schedule"])
async def test_the_counts_of_a_tick_that_failed(database: str, connect: Connect, every: Every | None) -> None:
    runner = Runner("carts", breaks, every=every)
    async with crew(database, runner) as at:
        ticked = await at.ticker.tick(runner, PLENTY)
    assert (ticked.outcome, ticked.counts) == ("failed", {"deleted": 13, "skipped": 2})
    assert runs(connect()) == [("carts", "failed", {"deleted": 13, "skipped": 2}, "ValueError")]


async def test_the_counts_of_a_thread_that_took_too_long(database: str, connect: Connect) -> None:
    go = threading.Event()

    def slow(tick: Tick) -> Counts:
        tick.count("deleted", 3)
        go.wait(SOON)
        return {"deleted": 4}

    runner = Runner("carts", slow)
    async with crew(database, runner) as at:
        try:
            ticked = await at.ticker.tick(runner, Limits(None, 0.2))
        finally:
            go.set()
    assert (ticked.outcome, ticked.counts) == ("failed", {"deleted": 3})
    assert runs(connect()) == [("carts", "failed", {"deleted": 3}, "timeout")]


async def test_the_counts_of_a_stopped_tick(database: str, connect: Connect) -> None:
    async def stopped(tick: Tick) -> Counts:
        tick.count("deleted", 3)
        at.ticker.abort(AbortReason.shutdown)
        await tick.signal.wait()
        return {}

    runner = Runner("carts", stopped)
    async with crew(database, runner) as at:
        await at.ticker.tick(runner, PLENTY)
    [(_, outcome, counts, _)] = runs(connect())
    assert (outcome, counts) == ("cancelled", {"deleted": 3})


async def test_what_is_returned_stands_beside_what_was_counted(database: str, connect: Connect) -> None:
    def both(tick: Tick) -> Counts:
        tick.count("deleted", 3)
        tick.count("looked_at", 9)
        return {"deleted": 4, "kept": 1}

    runner = Runner("carts", both)
    async with crew(database, runner) as at:
        assert (await at.ticker.tick(runner, PLENTY)).counts == {"deleted": 4, "looked_at": 9, "kept": 1}
    assert runs(connect()) == [("carts", "completed", {"deleted": 4, "looked_at": 9, "kept": 1}, None)]


@pytest.mark.parametrize(("name", "more"), [("deleted", 1.5), ("deleted", True), (3, 1)])
def test_what_is_not_a_count_is_refused(name: str, more: int) -> None:
    with pytest.raises(HoldfastError, match="by name and in whole numbers"):
        Tick(name="carts").count(name, more)


async def test_schedules_count_what_they_enqueued_beside_one_that_is_broken(database: str, connect: Connect) -> None:
    app = Holdfast(database)

    @app.job("mail")
    async def mail(job: object) -> None: ...

    conn = connect()
    run_sync(conn, register_schedules([(name, HOURLY, mail.new()) for name in ("broken", "good")]))
    conn.execute("UPDATE holdfast.schedule SET declared = NULL, next_at = now()")
    conn.execute("UPDATE holdfast.schedule SET schedule = 'now and then' WHERE name = 'broken'")
    await run_tick(application_of(app, fast(tick_runners=("schedules",))))
    assert runs(conn) == [("schedules", "failed", {"enqueued": 1}, "HoldfastError")]
