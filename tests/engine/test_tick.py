from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Busy, Continue, Holdfast, HoldfastError, Job
from holdfast._app.app import application_of
from holdfast._engine.once import run_tick
from holdfast._model.errors import AbortReason
from holdfast._model.schedule import Every
from tests.kit.databases import clone
from tests.kit.fleet import MS, SOON, alone, fast, make_due, runs, schedule
from tests.kit.statement import MODES, Document
from tests.kit.trouble import read_only
from tests.kit.waiting import until
from tests.kit.workers import Worker as Claimer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from holdfast._engine.runner import Counts, Tick
    from tests.kit.fleet import Connect
    from tools.postgres import Server

modes = Document(MODES)

HOUR = Every(timedelta(hours=1))


@pytest.fixture
def other(server: Server, template: str) -> Iterator[str]:
    with clone(server, template) as url:
        yield url


def enqueue(app: Holdfast, conn: psycopg.Connection[Any], kind: str, jobs: int) -> None:
    new = app.kinds[kind].new()  # type: ignore[call-arg]
    app.sync.enqueue_many(conn, [new] * jobs)


def mail(app: Holdfast) -> list[int]:
    """Register a kind; return where its jobs leave their ids."""
    sent: list[int] = []

    @app.job("mail")
    async def send(job: Job[Any]) -> None:
        sent.append(job.id)

    return sent


@modes.states("a tick runs the configured runners in their order")
async def test_the_selected_runners_once_in_order(database: str) -> None:
    app = Holdfast(database)
    order: list[str] = []
    for name in ("invoiceReminders", "classesBilling"):

        @app.runner(name)
        async def cycle(tick: Tick) -> Counts:
            order.append(tick.name)
            return {"done": 1}

    result = await run_tick(application_of(app, fast()))
    assert [ticked.runner for ticked in result.runners] == [
        "outbox",
        "invoiceReminders",
        "classesBilling",
        "schedules",
        "reaper",
        "bulk_actions",
        "maintenance",
    ]
    assert order == ["invoiceReminders", "classesBilling"]
    assert result.exit_code == 0
    result = await run_tick(
        application_of(app, fast(tick_runners=("classesBilling", "reaper", "invoiceReminders", "-maintenance")))
    )
    chosen = ["classesBilling", "reaper", "invoiceReminders"]
    assert [ticked.runner for ticked in result.runners] == [*chosen, "schedules", "bulk_actions"]


async def test_a_runner_that_is_not_known(database: str) -> None:
    with pytest.raises(HoldfastError, match="no runner is named typo"):
        await run_tick(application_of(Holdfast(database), fast(tick_runners=("typo",))))


async def test_no_database() -> None:
    with pytest.raises(HoldfastError, match="no database"):
        await run_tick(application_of(Holdfast(), fast()))


@modes.states("a runner that fails is reported by the exit status, and does not stop the next")
async def test_one_that_fails_does_not_stop_the_next(database: str, connect: Connect) -> None:
    app = Holdfast(database)

    @app.runner("broken")
    async def broken(_: Tick) -> Counts:
        raise ValueError("no luck")

    @app.runner("fine")
    def fine(_: Tick) -> Counts:
        return {"done": 2}

    result = await run_tick(application_of(app, fast(tick_runners=alone("broken", "fine"))))
    assert [(ticked.outcome, dict(ticked.counts)) for ticked in result.runners] == [
        ("failed", {}),
        ("completed", {"done": 2}),
    ]
    assert result.exit_code == 1
    assert runs(connect()) == [("broken", "failed", None, "ValueError"), ("fine", "completed", {"done": 2}, None)]


@modes.states("WORKER_TICK_OVERALL_MAX_MS bounds the whole tick: what has no time left is skipped")
async def test_budgets_of_each_and_of_all(database: str) -> None:
    app = Holdfast(database)
    seen: list[int | None] = []

    async def slow(tick: Tick) -> Counts:
        seen.append(tick.budget.items_left)
        await asyncio.Event().wait()
        return {}

    for name in ("first", "second", "third"):
        app.runner(name)(slow)
    settings = fast(
        tick_runners=alone("first", "second", "third"),
        tick_runner_max=3_000 * MS,
        tick_runner_max_items=7,
        tick_overall_max=4_000 * MS,
    )
    result = await run_tick(application_of(app, settings))
    assert [(ticked.outcome, ticked.why) for ticked in result.runners][0::2] == [
        ("failed", None),
        ("skipped", "no time left"),
    ]
    assert result.runners[1].outcome in {"failed", "skipped"}
    assert set(seen) == {7}
    assert result.seconds < SOON


@pytest.mark.parametrize("wait", [0.0, 0.001, 0.02])
async def test_what_was_claimed_ahead_is_run_too(database: str, connect: Connect, wait: float) -> None:
    app = Holdfast(database)

    @app.job("act")
    async def act(job: Job[Any]) -> None:
        await asyncio.sleep(wait)

    enqueue(app, connect(), "act", 150)
    # A heartbeat that is held up must not abort what is held.
    settings = fast(tick_runners=("outbox",), batch_size=200, lease=60_000 * MS, heartbeat=10_000 * MS)
    result = await run_tick(application_of(app, settings))
    assert dict(result.runners[0].counts) == {"processed": 150, "completed": 150}


async def test_what_becomes_due_by_an_ending_is_run_too(database: str, connect: Connect) -> None:
    app = Holdfast(database)

    @app.job("step")
    async def step(job: Job[Any], left: int = 2) -> Continue[None] | None:
        return Continue(step.new(left - 1)) if left else None

    conn = connect()
    ordered = [step.new(0).options(order_key="a") for _ in range(3)]
    app.sync.enqueue_many(conn, [*ordered, step.new(2)])
    result = await run_tick(
        application_of(app, fast(tick_runners=("outbox",), lease=10_000 * MS, heartbeat=1_000 * MS))
    )
    assert dict(result.runners[0].counts) == {"processed": 6, "completed": 6}


async def test_the_outbox_runs_what_is_due_and_ends(database: str, connect: Connect) -> None:
    app = Holdfast(database)
    sent = mail(app)
    conn = connect()
    enqueue(app, conn, "mail", 120)
    result = await run_tick(application_of(app, fast(tick_runners=("outbox",), batch_size=50)))
    assert (result.exit_code, dict(result.runners[0].counts)) == (0, {"processed": 120, "completed": 120})
    assert len(set(sent)) == 120
    assert runs(conn) == [("outbox", "completed", {"processed": 120, "completed": 120}, None)]
    result = await run_tick(application_of(app, fast(tick_runners=("outbox",))))
    assert (dict(result.runners[0].counts), len(runs(conn))) == ({}, 1)


@modes.states("a runner takes at most WORKER_TICK_RUNNER_MAX_ITEMS work items in a tick")
@pytest.mark.parametrize("items", [1, 37])
async def test_the_outbox_keeps_to_its_items(database: str, connect: Connect, items: int) -> None:
    app = Holdfast(database)
    sent = mail(app)
    conn = connect()
    enqueue(app, conn, "mail", 50)
    result = await run_tick(
        application_of(app, fast(tick_runners=("outbox",), tick_runner_max_items=items, batch_size=10))
    )
    assert len(sent) == items
    assert dict(result.runners[0].counts) == {"processed": items, "completed": items}
    left = conn.execute("SELECT count(*), max(attempt) FROM holdfast.job WHERE status = 'pending'").fetchone()
    assert left == (50 - items, 0)


# A pass that has this much time and waits for nothing ends long before.
MINUTES: dict[str, Any] = {
    "tick_runners": alone("outbox"),
    "tick_runner_max": 120_000 * MS,
    "tick_overall_max": 120_000 * MS,
    "lease": 60_000 * MS,
    "heartbeat": 10_000 * MS,
}


def paused(conn: psycopg.Connection[Any]) -> None:
    conn.execute("INSERT INTO holdfast.queue (name, paused) VALUES ('default', true)")


async def test_a_queue_that_is_paused_is_not_waited_for(database: str, connect: Connect) -> None:
    app = Holdfast(database)
    mail(app)
    conn = connect()
    paused(conn)
    enqueue(app, conn, "mail", 3)
    async with asyncio.timeout(SOON):
        result = await run_tick(application_of(app, fast(**MINUTES)))
    assert [(ticked.outcome, dict(ticked.counts)) for ticked in result.runners] == [("completed", {})]


@pytest.mark.parametrize("jobs", [1, 60])
async def test_a_queue_that_rests_for_longer_is_not_waited_for(database: str, connect: Connect, jobs: int) -> None:
    """Jobs that were claimed ahead are released, uncounted."""
    app = Holdfast(database)

    @app.job("saturated")
    async def saturated(job: Job[Any]) -> None:
        raise Busy(timedelta(minutes=10))

    conn = connect()
    enqueue(app, conn, "saturated", jobs)
    async with asyncio.timeout(SOON):
        result = await run_tick(application_of(app, fast(**MINUTES)))
    assert result.runners[0].outcome == "completed"
    left = conn.execute("SELECT status::text, attempt, count(*) FROM holdfast.job GROUP BY 1, 2").fetchall()
    assert left == [("pending", 0, jobs)]


async def test_a_queue_that_rests_for_a_moment_is_waited_for(database: str, connect: Connect) -> None:
    app = Holdfast(database)
    sent = mail(app)

    rests: list[int] = []

    @app.job("saturated")
    async def saturated(job: Job[Any]) -> None:
        if not rests:
            rests.append(job.id)
            raise Busy(300 * MS)

    conn = connect()
    enqueue(app, conn, "saturated", 1)
    conn.execute("UPDATE holdfast.job SET priority = 0")
    enqueue(app, conn, "mail", 3)
    async with asyncio.timeout(SOON):
        await run_tick(application_of(app, fast(**MINUTES | {"batch_size": 1})))
    assert len(rests) == 1
    assert len(sent) == 3


async def test_a_queue_that_is_full_is_looked_at_again(database: str, connect: Connect) -> None:
    """Though the other queues are empty."""
    app = Holdfast(database)
    app.job("other", queue="other")(nothing)

    @app.job("act")
    async def act(job: Job[Any]) -> None:
        await asyncio.sleep(0.001)

    enqueue(app, connect(), "act", 20)
    settings = fast(**MINUTES | {"queue_concurrency": {"default": 2}})
    async with asyncio.timeout(SOON):
        result = await run_tick(application_of(app, settings))
    assert dict(result.runners[0].counts) == {"processed": 20, "completed": 20}


async def nothing(job: Job[Any]) -> None: ...


async def test_the_lifespan_is_entered_once_and_shared(database: str, connect: Connect) -> None:
    entered: list[str] = []

    @asynccontextmanager
    async def resources(_: Holdfast) -> AsyncIterator[str]:
        entered.append("in")
        yield "shared"
        entered.append("out")

    app = Holdfast(database, lifespan=resources)
    states: list[str] = []

    @app.job("mail")
    async def send(job: Job[str]) -> None:
        states.append(job.state)

    @app.runner("cycle")
    async def cycle(tick: Tick) -> Counts:
        states.append(tick.state)
        return {}

    enqueue(app, connect(), "mail", 1)
    await run_tick(application_of(app, fast(tick_runners=("outbox", "cycle"))))
    assert (entered, states) == (["in", "out"], ["shared", "shared"])


async def test_a_schedule_is_not_run_before_its_slot(database: str, connect: Connect) -> None:
    app = Holdfast(database)
    slots: list[Any] = []

    @app.runner("hourly", every=HOUR, at_start=False)
    async def hourly(tick: Tick) -> Counts:
        slots.append(tick.slot)
        return {}

    settings = fast(tick_runners=alone("hourly"))
    conn = connect()
    for _ in range(2):
        (ticked,) = (await run_tick(application_of(app, settings))).runners
        assert (ticked.outcome, ticked.why) == ("skipped", "not due")
    make_due(conn, "hourly")
    (due,) = schedule(conn, "hourly", "next_at")
    (ticked,) = (await run_tick(application_of(app, settings))).runners
    assert (ticked.outcome, slots) == ("completed", [due])
    (ticked,) = (await run_tick(application_of(app, settings))).runners
    assert ticked.why == "not due"
    assert runs(conn) == [("hourly", "completed", None, None)]


async def test_the_reaper_takes_any_kind_within_its_items(database: str, connect: Connect) -> None:
    conn = connect()
    conn.execute("SELECT holdfast.enqueue('nobodys') FROM generate_series(1, 5)")
    claimer = Claimer(conn, "nobodys")
    claimer.claim(5)
    conn.execute("UPDATE holdfast.job SET locked_until = now() - interval '1 minute'")
    app = Holdfast(database)
    result = await run_tick(application_of(app, fast(tick_runners=("reaper",), tick_runner_max_items=3)))
    assert dict(result.runners[0].counts) == {"recovered": 3, "failed": 0, "cancelled": 0}
    result = await run_tick(application_of(app, fast(tick_runners=("reaper",))))
    assert result.runners[0].counts["recovered"] == 2


async def test_cancelling_stops_gently(database: str, connect: Connect) -> None:
    app = Holdfast(database)
    started = asyncio.Event()
    after: list[AbortReason | None] = []

    @app.runner("cycle", every=HOUR, singleton=True, at_start=False)
    async def cycle(tick: Tick) -> Counts:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            after.append(tick.signal.reason)
        return {}

    conn = connect()
    settings = fast(tick_runners=("cycle",))
    await run_tick(application_of(app, settings))
    make_due(conn, "cycle")
    (due,) = schedule(conn, "cycle", "next_at")
    task = asyncio.create_task(run_tick(application_of(app, settings)))
    await asyncio.wait_for(started.wait(), SOON)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, SOON)
    assert after == [AbortReason.shutdown]
    # Its slot was given back: the next one runs it, and it counts as the first time.
    assert schedule(conn, "cycle", "slot_at, attempt, locked_by") == (due, 0, None)
    assert runs(conn) == [("cycle", "cancelled", None, "shutdown")]
    stopped = "SELECT count(*) FROM holdfast.worker WHERE stopped_at IS NULL"
    await until(lambda: conn.execute(stopped).fetchone() == (0,))


async def test_several_databases_and_one_that_is_down(server: Server, template: str, database: str) -> None:
    with clone(server, template) as other:
        down = database.rpartition("/")[0] + "/nowhere"
        app = Holdfast()
        ran: list[str] = []

        @app.runner("cycle")
        async def cycle(tick: Tick) -> Counts:
            ran.append(tick.name)
            return {"done": 1}

        settings = fast(database_urls=(database, down, other), tick_runners=alone("cycle", "reaper"))
        result = await run_tick(application_of(app, settings))
        names = [url.rpartition("/")[2] for url in (database, down, other)]
        assert [(ticked.runner, ticked.outcome, ticked.database) for ticked in result.runners] == [
            ("*", "failed", names[1]),
            ("cycle", "completed", names[0]),
            ("reaper", "completed", names[0]),
            ("reaper", "completed", names[2]),
        ]
        assert (result.exit_code, ran) == (1, ["cycle"])


@pytest.fixture
def patient_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that answers late is served in this tick all the same."""
    monkeypatch.setattr("holdfast._engine.served.START_SECONDS", 20.0)


@pytest.mark.usefixtures("patient_start")
async def test_one_of_several_databases_only_reads(server: Server, database: str, other: str, connect: Connect) -> None:
    app = Holdfast()
    sent = mail(app)
    enqueue(app, connect(), "mail", 1)
    with read_only(server, other):
        result = await run_tick(
            application_of(app, fast(database_urls=(database, other), tick_runners=alone("outbox")))
        )
    names = [url.rpartition("/")[2] for url in (database, other)]
    assert [(ticked.runner, ticked.outcome, ticked.database) for ticked in result.runners] == [
        ("*", "failed", names[1]),
        ("outbox", "completed", names[0]),
    ]
    assert len(sent) == 1


@pytest.mark.usefixtures("patient_start")
async def test_what_belongs_to_the_first_database_runs_nowhere_while_it_is_down(
    database: str, connect: Connect
) -> None:
    """Jobs of the others are run all the same."""
    down = database.rpartition("/")[0] + "/nowhere"
    app = Holdfast()
    sent = mail(app)
    ran: list[str] = []

    @app.runner("cycle", every=HOUR)
    @app.runner("always")
    async def cycle(tick: Tick) -> Counts:
        ran.append(tick.name)
        return {"done": 1}

    app.schedule("nightly", app.kinds["mail"].new(), every=HOUR)  # type: ignore[call-arg]
    conn = connect()
    enqueue(app, conn, "mail", 1)
    settings = fast(database_urls=(down, database), tick_runners=alone("outbox", "cycle", "always", "schedules"))
    result = await run_tick(application_of(app, settings))
    name = database.rpartition("/")[2]
    assert [(ticked.runner, ticked.outcome, ticked.database) for ticked in result.runners] == [
        ("*", "failed", "nowhere"),
        ("outbox", "completed", name),
        ("schedules", "completed", name),
    ]
    assert (result.exit_code, ran, len(sent)) == (1, [], 1)
    assert conn.execute("SELECT name FROM holdfast.schedule").fetchall() == []


@pytest.mark.usefixtures("patient_start")
async def test_a_database_whose_queue_is_paused_keeps_no_other_waiting(
    database: str, other: str, connect: Connect
) -> None:
    app = Holdfast()
    sent = mail(app)
    paused(connect())
    with psycopg.connect(other, autocommit=True) as conn:
        enqueue(app, conn, "mail", 3)
    async with asyncio.timeout(SOON):
        result = await run_tick(application_of(app, fast(database_urls=(database, other), **MINUTES)))
    assert len(sent) == 3
    assert dict(result.runners[0].counts) == {"processed": 3, "completed": 3}


@pytest.mark.usefixtures("patient_start")
async def test_a_backlog_in_one_database_keeps_no_other_waiting(database: str, other: str, connect: Connect) -> None:
    app = Holdfast()
    order: list[str] = []

    @app.job("slow")
    async def slow(job: Job[Any]) -> None:
        order.append(job.kind)
        await asyncio.sleep(0.02)

    @app.job("quick")
    async def quick(job: Job[Any]) -> None:
        order.append(job.kind)

    enqueue(app, connect(), "slow", 100)
    with psycopg.connect(other, autocommit=True) as conn:
        enqueue(app, conn, "quick", 1)
    await run_tick(application_of(app, fast(database_urls=(database, other), concurrency=4, **MINUTES)))
    assert len(order) == 101
    assert order.index("quick") < 50


@pytest.mark.usefixtures("patient_start")
@pytest.mark.parametrize("jobs", [(30, 30), (2, 30), (30, 2)])
async def test_what_one_database_leaves_of_the_items_goes_to_the_others(
    database: str, other: str, connect: Connect, jobs: tuple[int, int]
) -> None:
    app = Holdfast()
    mail(app)
    with psycopg.connect(other, autocommit=True) as there:
        for conn, number in zip((connect(), there), jobs, strict=True):
            enqueue(app, conn, "mail", number)
        settings = fast(database_urls=(database, other), tick_runner_max_items=20, **MINUTES)
        result = await run_tick(application_of(app, settings))
        left = there.execute("SELECT count(*) FROM holdfast.job").fetchone()
    assert dict(result.runners[0].counts) == {"processed": 20, "completed": 20}
    assert left == {(30, 30): (20,), (2, 30): (12,), (30, 2): (0,)}[jobs]


@pytest.mark.usefixtures("patient_start")
async def test_a_database_that_fails_meanwhile_harms_no_other(database: str, other: str, connect: Connect) -> None:
    app = Holdfast()
    sent = mail(app)
    connect().execute(
        "CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'no claims here' USING ERRCODE = 'crash_shutdown'; END $$;"
        "CREATE TRIGGER refuse BEFORE UPDATE ON holdfast.job EXECUTE FUNCTION public.refuse()"
    )
    with psycopg.connect(other, autocommit=True) as conn:
        for each in (connect(), conn):
            enqueue(app, each, "mail", 10)
        result = await run_tick(application_of(app, fast(database_urls=(database, other), **MINUTES)))
        assert conn.execute("SELECT count(*) FROM holdfast.job").fetchone() == (0,)
    assert len(sent) == 10
    (ticked,) = result.runners
    assert ticked.outcome == "failed"
    assert ticked.failure is not None
    assert "no claims here" in ticked.failure.text
