"""A slot that passed while no worker ran: it runs once, late, or it is skipped."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Cron, Every, Holdfast
from holdfast._drivers import run_sync
from holdfast._engine.runner import PeriodicJob, Runner, Tick
from holdfast._engine.runners.ticker import Limits
from holdfast._model.new_job import Envelope, NewJob
from holdfast._store.schedule import list_schedules, trigger_schedule
from tests.kit.fleet import SOON, crew, make_due, schedule
from tests.kit.workers import number

if TYPE_CHECKING:
    from tests.kit.fleet import Connect

PLENTY = Limits(None, SOON)
NIGHTLY = Cron("0 2 * * *")
A_MORNING = 8 * 3600
REPORT = NewJob[Any](Envelope("report"), "{}")


async def bill(tick: Tick) -> dict[str, int]:
    return {"billed": 1}


async def passed(database: str, connect: Connect, *, missed: Any, ago: float, trigger: bool = False) -> tuple[int, int]:
    """Let a slot of a runner and of a periodic job be that long ago. Return how often each of the two ran."""
    conn, ran = connect(), 0
    runner = Runner("bill", bill, every=NIGHTLY, missed=missed)
    async with crew(database, runner, periodic=[PeriodicJob("report", REPORT, every=NIGHTLY, missed=missed)]) as at:
        both = (runner, at.runners["schedules"])
        for each in both:
            await at.ticker.tick(each, PLENTY)
        for name in ("bill", "report"):
            make_due(conn, name, ago=ago)
            if trigger:
                run_sync(conn, trigger_schedule(name))
        for _ in range(3):
            ran += (await at.ticker.tick(runner, PLENTY)).outcome == "completed"
            await at.ticker.tick(both[1], PLENTY)
    for name in ("bill", "report"):
        assert schedule(conn, name, "next_at > now(), triggered_at") == (True, None)
    return ran, number(conn, "SELECT count(*) FROM holdfast.job")


async def test_it_runs_once_however_many_were_missed(database: str, connect: Connect) -> None:
    assert await passed(database, connect, missed="run", ago=10 * 86_400) == (1, 1)


async def test_it_is_skipped(database: str, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert await passed(database, connect, missed="skip", ago=A_MORNING) == (0, 0)
    skipped = [each for each in caplog.messages if each.startswith("a missed slot was skipped: schedule=")]
    assert sorted(each.split("=")[1] for each in skipped) == ["bill slot", "report slot"]


async def test_less_than_a_minute_late_is_in_time(database: str, connect: Connect) -> None:
    assert await passed(database, connect, missed="skip", ago=20) == (1, 1)


async def test_a_trigger_runs_in_spite_of_it(database: str, connect: Connect) -> None:
    assert await passed(database, connect, missed="skip", ago=A_MORNING, trigger=True) == (1, 1)


async def test_a_slot_whose_worker_died_runs_again(database: str, connect: Connect) -> None:
    conn = connect()
    runner = Runner("bill", bill, every=NIGHTLY, missed="skip")
    async with crew(database, runner) as at:
        await at.ticker.tick(runner, PLENTY)
        make_due(conn, "bill", ago=A_MORNING)
        conn.execute("UPDATE holdfast.schedule SET slot_at = next_at, attempt = 1 WHERE name = 'bill'")
        assert (await at.ticker.tick(runner, PLENTY)).outcome == "completed"


async def test_a_missed_slot_outlives_a_new_payload(database: str, connect: Connect) -> None:
    conn = connect()
    for payload, seconds in (("{}", A_MORNING), ('{"a": 1}', None)):
        job = PeriodicJob("report", NewJob[Any](Envelope("report"), payload), every=NIGHTLY)
        async with crew(database, periodic=[job]) as at:
            await at.ticker.tick(at.runners["schedules"], PLENTY)
        if seconds:
            make_due(conn, "report", ago=seconds)
    assert conn.execute("SELECT payload::text FROM holdfast.job").fetchall() == [('{"a": 1}',)]


async def test_what_the_code_says_is_stored(database: str, connect: Connect) -> None:
    conn = connect()
    for missed in ("run", "skip", "run"):
        app = Holdfast(database)
        app.runner("bill", every=Every(3600), missed=missed)(bill)
        app.http_runner("remind", "/remind", every=Every(3600), missed=missed)
        app.schedule("report", REPORT, every=NIGHTLY, missed=missed)
        runners = list(app.runners.values())
        async with crew(database, *runners, periodic=list(app.schedules.values())) as at:
            await at.ticker.tick(at.runners["schedules"], PLENTY)
        stored = {line.name: line.missed for line in run_sync(conn, list_schedules())}
        assert stored.items() >= dict.fromkeys(("bill", "remind", "report"), missed).items()


def test_other_words_are_refused() -> None:
    app = Holdfast()
    wrong: Any = "later"
    with pytest.raises(ValueError, match="missed: expected one of run, skip, got 'later'"):
        app.schedule("report", REPORT, every=NIGHTLY, missed=wrong)
    with pytest.raises(ValueError, match="missed: expected one of run, skip, got 'later'"):
        app.runner("bill", every=NIGHTLY, missed=wrong)(bill)
    with pytest.raises(ValueError, match="missed: only a runner with a schedule has slots, give every= too"):
        app.runner("carts", missed="skip")(bill)
