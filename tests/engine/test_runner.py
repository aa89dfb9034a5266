from __future__ import annotations

import asyncio
import doctest
import re
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, HoldfastError, Job, Unique
from holdfast._app.app import application_of
from holdfast._engine import runner as runner_module
from holdfast._engine.once import run_tick
from holdfast._engine.runner import Budget, Counts, Runner, Tick, selected
from holdfast._engine.runners.ticker import Limits
from holdfast._model.errors import AbortReason
from holdfast._model.schedule import Cron, Every
from tests.kit.clock import Clock
from tests.kit.fleet import SOON, alone, crew, fast, runs
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.fleet import Connect

PLENTY = Limits(None, SOON)


def idle(_: Tick) -> Counts:
    return {}


def test_the_examples_in_the_docstrings_are_true() -> None:
    result = doctest.testmod(runner_module)
    assert (result.attempted > 0, result.failed) == (True, 0)


def test_a_budget_of_items() -> None:
    budget = Budget(items=3)
    assert (budget.items_left, budget.seconds_left, budget.spent, budget.limit(2), budget.limit(9)) == (
        3,
        None,
        False,
        2,
        3,
    )
    budget.spend()
    budget.spend(2)
    assert (budget.spent, budget.limit(2)) == (True, 0)


def test_a_budget_of_time() -> None:
    clock = Clock(0.0)
    budget = Budget(seconds=2.0, clock=clock)
    assert (budget.seconds_left, budget.spent) == (2.0, False)
    clock.now = 5.0
    assert (budget.seconds_left, budget.spent) == (0.0, True)


def test_no_budget() -> None:
    budget = Budget()
    budget.spend(1_000_000)
    assert (budget.spent, budget.limit(500), budget.items_left) == (False, 500, None)


def test_runners_are_registered_and_stay_functions() -> None:
    app = Holdfast()

    @app.runner("cleanup", every=Cron("17 3 * * *", tz="America/Santiago"), singleton=True)
    async def cleanup(tick: Tick) -> Counts:
        return {"deleted": tick.budget.limit(5)}

    @app.runner("plain")
    def plain(_: Tick) -> Counts:
        return {}

    app.http_runner("reminders", "/internal/reminders", every=Every(timedelta(minutes=5)))
    assert list(app.runners) == ["cleanup", "plain", "reminders"]
    assert asyncio.run(cleanup(Tick(name="cleanup"))) == {"deleted": 5}
    assert plain(Tick(name="plain")) == {}
    found = app.runners["cleanup"]
    assert (found.singleton, found.is_async, str(found)) == (True, True, "<Runner cleanup>")
    assert not app.runners["plain"].is_async


@pytest.mark.parametrize("name", ["outbox", "schedules", "reaper", "bulk_actions", "maintenance", "mine", "nightly"])
def test_names_are_taken_once(name: str) -> None:
    app = Holdfast()
    report = app.job("report")(lambda: None)
    app.runner("mine")(idle)
    app.schedule("nightly", report.new(), every=Cron("0 2 * * *"))
    with pytest.raises(
        HoldfastError,
        match=rf"^{name}: (a built-in runner has this name|a runner or schedule of this name is registered at)",
    ):
        app.runner(name)(idle)
    with pytest.raises(HoldfastError, match=rf"^{name}: .*: (choose another one|give one of them another name)"):
        app.schedule(name, report.new(), every=Cron("0 2 * * *"))


@pytest.mark.parametrize("name", ["", "a,b", "line\nbreak", "x" * 201])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(ValueError, match="a name is"):
        Runner(name, idle)


def test_what_else_cannot_be() -> None:
    with pytest.raises(ValueError, match="max_runtime"):
        Holdfast().runner("a", max_runtime=0)(idle)
    app = Holdfast()

    @app.job("report")
    async def report(job: Job[None]) -> None: ...

    with pytest.raises(ValueError, match="raises on a conflict"):
        app.schedule("a", report.new().options(unique=Unique("a", on_conflict="raise")), every=Cron("0 2 * * *"))
    with pytest.raises(TypeError, match=r"app\.schedule: report is a Kind, not a job"):
        app.schedule("a", report, every=Cron("0 2 * * *"))  # type: ignore[arg-type]


def test_the_order_of_runners() -> None:
    mine = {name: Runner(name, idle) for name in ("invoiceReminders", "classesBilling")}
    assert selected(None, mine) == [
        "outbox",
        "invoiceReminders",
        "classesBilling",
        "relay",
        "schedules",
        "reaper",
        "bulk_actions",
        "maintenance",
    ]
    others = ["relay", "schedules", "reaper", "bulk_actions", "maintenance"]
    assert selected(("classesBilling", "outbox"), mine) == ["classesBilling", "outbox", *others]
    assert selected(("reaper", "classesBilling", "-relay"), mine) == [
        "reaper",
        "classesBilling",
        "schedules",
        *others[3:],
    ]
    assert selected(("-outbox", "-classesBilling"), mine) == ["invoiceReminders", *others]
    with pytest.raises(HoldfastError, match="no runner is named typo, other; there are outbox"):
        selected(("typo", "outbox", "-other"), mine)


async def test_a_tick_knows_its_name_state_settings_and_run(database: str) -> None:
    seen: list[Tick] = []
    left: list[float | None] = []

    async def look(tick: Tick) -> Counts:
        seen.append(tick)
        left.append(tick.budget.seconds_left)
        return {"looked": 1}

    settings = fast()
    async with crew(database, Runner("look", look), state="shared", settings=settings) as at:
        await at.ticker.tick(at.runners["look"], Limits(7, 10.0))
    (tick,) = seen
    assert (tick.name, tick.state, tick.settings, tick.slot, tick.attempt) == ("look", "shared", settings, None, 1)
    assert tick.budget.items_left == 7
    assert 5 < (left[0] or 0) <= 9  # told a little early, so that it can end by itself
    assert tick.run_id > 0
    assert str(tick) == f"<Tick {tick.run_id} look>"


async def test_what_did_something_is_recorded_and_what_did_not_once_in_a_while(database: str, connect: Connect) -> None:
    answers: list[Counts | None] = [{}, {"deleted": 0}, None, {"deleted": 3, "kept": 0}]

    async def work(_: Tick) -> Counts | None:
        return answers.pop(0)

    conn = connect()
    async with crew(database, Runner("work", work)) as at:
        for _ in range(4):
            assert (await at.ticker.tick(at.runners["work"], PLENTY)).outcome == "completed"
        # Of those that did nothing the first one is recorded, and after a minute another one in its place.
        assert runs(conn) == [
            ("work", "completed", None, None),
            ("work", "completed", {"deleted": 3, "kept": 0}, None),
        ]
        row = conn.execute("SELECT worker_id, finished_at >= started_at FROM holdfast.run LIMIT 1").fetchone()
        assert row == (at.database.worker, True)


@pytest.mark.parametrize(
    ("answer", "code"),
    [(12, "HoldfastError"), ({"a": True}, "HoldfastError"), ({1: 1}, "HoldfastError"), ({"a": 1.5}, "HoldfastError")],
)
async def test_answers_that_are_no_counts_are_failures(database: str, connect: Connect, answer: Any, code: str) -> None:
    async def work(_: Tick) -> Any:
        return answer

    async with crew(database, Runner("work", work)) as at:
        ticked = await at.ticker.tick(at.runners["work"], PLENTY)
    assert ticked.outcome == "failed"
    assert runs(connect()) == [("work", "failed", None, code)]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), ExceptionGroup("g", [OSError("x")])])
@pytest.mark.parametrize("plain", [False, True])
async def test_whatever_a_runner_raises_is_an_outcome(
    database: str, connect: Connect, error: BaseException, plain: bool
) -> None:
    def work(_: Tick) -> Counts:
        raise error

    async def work_async(tick: Tick) -> Counts:
        return work(tick)

    async with crew(database, Runner("work", work if plain else work_async)) as at:
        ticked = await at.ticker.tick(at.runners["work"], PLENTY)
        assert ticked.failure is not None
        assert (ticked.outcome, ticked.failure.code) == ("failed", type(error).__name__)
        assert not at.runners["work"].running
    assert runs(connect())[0][:2] == ("work", "failed")


async def test_a_plain_function_runs_in_a_thread(database: str) -> None:
    threads: list[bool] = []

    def work(_: Tick) -> Counts:
        threads.append(threading.current_thread() is threading.main_thread())
        return {"done": 1}

    async with crew(database, Runner("work", work)) as at:
        assert (await at.ticker.tick(at.runners["work"], PLENTY)).counts == {"done": 1}
    assert threads == [False]


async def test_a_runner_that_takes_too_long_is_cancelled(database: str, connect: Connect) -> None:
    reasons: list[AbortReason | None] = []

    async def work(tick: Tick) -> Counts:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(tick.signal.reason)
        return {}

    async with crew(database, Runner("work", work)) as at:
        ticked = await at.ticker.tick(at.runners["work"], Limits(None, 0.05))
    assert ticked.failure is not None
    assert (ticked.outcome, ticked.failure.text) == ("failed", "it ran longer than 0.05 s")
    assert reasons == [AbortReason.timeout]
    assert runs(connect()) == [("work", "failed", None, "timeout")]


async def test_a_thread_gets_the_signal_and_never_runs_twice(database: str) -> None:
    """It cannot be cancelled: it sees the signal, and while it goes on the runner is not started again."""
    entered, go = threading.Event(), threading.Event()

    def work(tick: Tick) -> Counts:
        assert tick.signal.wait_in_thread(SOON)
        entered.set()
        go.wait(SOON)
        return {"late": 1}

    async with crew(database, Runner("work", work)) as at:
        runner = at.runners["work"]
        assert (await at.ticker.tick(runner, Limits(None, 0.05))).outcome == "failed"
        await until(entered.is_set)
        assert runner.running
        again = await at.ticker.tick(runner, PLENTY)
        assert (again.outcome, again.why) == ("skipped", "already running")
        assert [(entered.name, entered.details) for entered in at.reported] == [
            ("runner_already_running", {"runner": "work"})
        ]
        go.set()
        await until(lambda: not runner.running)


async def test_two_ticks_at_once_are_one(database: str) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def work(_: Tick) -> Counts:
        started.set()
        await go.wait()
        return {"done": 1}

    async with crew(database, Runner("work", work)) as at:
        first = asyncio.create_task(at.ticker.tick(at.runners["work"], PLENTY))
        await started.wait()
        assert (await at.ticker.tick(at.runners["work"], PLENTY)).why == "already running"
        go.set()
        assert (await first).outcome == "completed"
        assert (await at.ticker.tick(at.runners["work"], PLENTY)).outcome == "completed"


def documented() -> list[str]:
    text = Path(__file__).parents[2].joinpath("docs", "how-to", "runners.md").read_text("utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


async def test_the_examples_of_the_page_run(database: str, connect: Connect) -> None:
    """All of them in one module, as a reader would write them; the cycle of ten lines does its work."""
    conn = connect()
    conn.execute("CREATE TABLE cart (id int PRIMARY KEY, touched_at timestamptz NOT NULL)")
    conn.execute("INSERT INTO cart SELECT n, now() - n * interval '1 day' FROM generate_series(0, 59) AS n")
    module: dict[str, Any] = {"URL": database}
    for block in documented():
        exec(compile(block, "docs/how-to/runners.md", "exec"), module)  # noqa: S102 - our own page
    app: Holdfast = module["app"]
    result = await run_tick(application_of(app, fast(tick_runners=alone("carts"))))
    (ticked,) = result.runners
    assert (ticked.outcome, ticked.why) == ("skipped", "not due")
    conn.execute("UPDATE holdfast.schedule SET next_at = now() WHERE name = 'carts'")
    result = await run_tick(application_of(app, fast(tick_runners=alone("carts"))))
    assert (result.exit_code, dict(result.runners[0].counts)) == (0, {"deleted": 30})
    assert conn.execute("SELECT count(*) FROM cart").fetchone() == (30,)


def test_a_cycle_of_ones_own_is_ten_lines() -> None:
    cycle = next(block for block in documented() if "carts" in block)
    lines = [line for line in cycle.splitlines() if line.strip() and not line.startswith(("from ", "import ", "app ="))]
    assert len(lines) <= 10
