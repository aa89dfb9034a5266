"""A runner with an interval runs at its first start, and by its slots from then on."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast
from holdfast._app.app import application_of
from holdfast._drivers import run_sync
from holdfast._engine.once import run_tick
from holdfast._engine.runner import Counts, Runner, Tick
from holdfast._engine.runners.ticker import Limits
from holdfast._model.schedule import Cron, Every
from holdfast._store.schedule import pause_schedule, register_schedules, resume_schedule
from tests.kit.fleet import SOON, alone, background, crew, fast, schedule
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.fleet import Connect

PLENTY = Limits(None, SOON)
# No slot comes while a test runs.
RARELY = Every(timedelta(days=300))
YEARLY = Cron("0 0 29 2 *")


def idle(_: Tick) -> Counts:
    return {}


async def outcomes(url: str, *runners: Runner) -> list[str]:
    """Return how a first tick of each ends, in a process of its own."""
    found: list[str] = []
    for runner in runners:
        async with crew(url, runner) as at:
            found.append((await at.ticker.tick(runner, PLENTY)).outcome)
    return found


async def test_an_interval_runs_at_its_first_start_and_not_at_the_next_ones(database: str, connect: Connect) -> None:
    starts = [Runner("sync", idle, every=RARELY) for _ in range(3)]
    assert await outcomes(database, *starts) == ["completed", "skipped", "skipped"]
    (following, last) = schedule(connect(), "sync", "next_at, last_at")
    assert RARELY.next(last) == following


async def test_a_loop_runs_it_at_once(database: str) -> None:
    ran: list[Tick] = []

    def work(tick: Tick) -> Counts:
        ran.append(tick)
        return {}

    async with background(database, Runner("sync", work, every=RARELY)):
        await until(lambda: ran)
    assert [tick.slot is not None for tick in ran] == [True]


async def test_a_time_of_day_waits_for_its_time(database: str) -> None:
    assert await outcomes(database, Runner("yearly", idle, every=YEARLY)) == ["skipped"]


async def test_at_start_overrides_the_default(database: str) -> None:
    app = Holdfast(database)
    app.runner("wait", every=RARELY, at_start=False)(idle)
    app.runner("now", every=YEARLY, at_start=True)(idle)
    result = await run_tick(application_of(app, fast(tick_runners=alone("wait", "now"))))
    assert [(ticked.outcome, ticked.why) for ticked in result.runners] == [("skipped", "not due"), ("completed", None)]


@pytest.mark.parametrize("at_start", [True, False])
def test_a_runner_that_calls_a_service_may_choose(at_start: bool) -> None:
    app = Holdfast()
    app.http_runner("reminders", "/reminders", every=RARELY, at_start=at_start)
    assert app.runners["reminders"].at_start is at_start


async def test_a_first_start_that_was_missed_is_made_up_for(database: str, connect: Connect) -> None:
    """The process that stored the schedule died before it ran it."""
    run_sync(connect(), register_schedules([("sync", RARELY, None)], at_start={"sync"}))
    assert await outcomes(database, Runner("sync", idle, every=RARELY)) == ["completed"]


async def test_another_interval_is_a_first_start_only_for_what_never_ran(database: str, connect: Connect) -> None:
    other = Every(timedelta(days=301))
    run_sync(connect(), register_schedules([("new", RARELY, None), ("old", RARELY, None)], at_start={"old"}))
    old, new = Runner("old", idle, every=RARELY), Runner("new", idle, every=other)
    assert await outcomes(database, old, new) == ["completed", "completed"]
    assert await outcomes(database, Runner("old", idle, every=other)) == ["skipped"]


async def test_resumed_it_goes_on_with_the_next_slot(database: str, connect: Connect) -> None:
    conn = connect()
    run_sync(conn, register_schedules([("sync", RARELY, None)], at_start={"sync"}))
    run_sync(conn, pause_schedule("sync"))
    assert await outcomes(database, Runner("sync", idle, every=RARELY)) == ["skipped"]
    run_sync(conn, resume_schedule("sync"))
    assert await outcomes(database, Runner("sync", idle, every=RARELY)) == ["skipped"]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"at_start": True}, ValueError, "at_start: only a runner with a schedule has a first start, give every="),
        ({"at_start": 1, "every": RARELY}, TypeError, "at_start: write at_start=False, not int"),
    ],
)
def test_an_option_that_cannot_be_is_refused(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Runner("sync", idle, **given)
