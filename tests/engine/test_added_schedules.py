"""Schedules that are added at run time, in a transaction of the application, beside those of the code."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Cron, Every, Holdfast, HoldfastError, Job
from holdfast._engine.runner import PeriodicJob
from holdfast._engine.runners.ticker import Limits
from holdfast._store.schedule import SlotScan
from tests.kit.fleet import SOON, background, crew, make_due
from tests.kit.waiting import until

if TYPE_CHECKING:
    from holdfast import Kind, ScheduleLine
    from tests.kit.fleet import Connect, Crew

PLENTY = Limits(None, SOON)


@pytest.fixture
def app(database: str) -> Holdfast:
    return Holdfast(database)


@pytest.fixture
def report(app: Holdfast) -> Kind[..., Any]:
    @app.job("report", queue="reports")
    async def report(job: Job[None], name: str) -> None: ...

    return report


def keys(conn: psycopg.Connection[Any], name: str) -> list[str]:
    """The unique keys of a schedule's jobs: one per slot."""
    found = conn.execute("SELECT unique_key FROM holdfast.job WHERE unique_key LIKE %s", [f"schedule:{name}:%"])
    return sorted(key for (key,) in found.fetchall())


def added(app: Holdfast, conn: psycopg.Connection[Any]) -> list[ScheduleLine]:
    return [line for line in app.sync.list_schedules(conn) if line.added]


async def tick(at: Crew) -> int:
    return (await at.ticker.tick(at.runners["schedules"], PLENTY)).counts.get("enqueued", 0)


async def test_it_begins_with_the_commit(
    app: Holdfast, report: Kind[..., Any], database: str, connect: Connect
) -> None:
    conn, user = connect(), connect()
    async with crew(database) as at:
        with user.transaction(force_rollback=True):
            assert app.sync.add_schedule(user, "a", report.new("a"), every=Every(3600))
        await tick(at)
        assert added(app, conn) == []
        with user.transaction():
            assert app.sync.add_schedule(user, "a", report.new("a"), every=Every(3600))
            await tick(at)
            assert added(app, conn) == []
        assert await tick(at) == 0, "its first slot is the next one"
        make_due(conn, "a")
        assert await tick(at) == 1
    [line] = added(app, conn)
    assert (line.name, line.what, line.schedule, line.added) == ("a", "job", "every 3600s", True)
    assert conn.execute("SELECT kind, queue, payload::text FROM holdfast.job").fetchall() == [
        ("report", "reports", '{"name":"a"}')
    ]


async def test_two_workers_run_each_slot_once_through_edits_and_a_pause(
    app: Holdfast, report: Kind[..., Any], database: str, connect: Connect
) -> None:
    conn = connect()
    async with background(database, names=["schedules"]), background(database, names=["schedules"]):
        for n, seconds in enumerate((0.05, 0.1, 0.05, 0.025)):
            assert app.sync.add_schedule(conn, "a", report.new(str(n)), every=Every(seconds)) == (n == 0)
            made = len(keys(conn, "a"))
            await until(lambda: len(keys(conn, "a")) >= made + 5)  # noqa: B023 - awaited here
        app.sync.pause_schedule(conn, "a")
        await until(lambda: added(app, conn)[0].paused)
        paused = len(keys(conn, "a"))
        assert not app.sync.add_schedule(conn, "a", report.new("paused"), every=Every(0.05))
        app.sync.trigger_schedule(conn, "a")
        await until(lambda: len(keys(conn, "a")) == paused + 1)
        app.sync.resume_schedule(conn, "a")
        await until(lambda: len(keys(conn, "a")) >= paused + 4)
        app.sync.remove_schedule(conn, "a")
        await until(lambda: added(app, conn) == [])
    found = keys(conn, "a")
    assert len(found) == len(set(found))
    of_all = conn.execute("SELECT count(DISTINCT payload ->> 'name') FROM holdfast.job").fetchone()
    assert of_all == (5,)


async def test_an_edit_that_keeps_the_times_keeps_the_next_slot(
    app: Holdfast, report: Kind[..., Any], database: str, connect: Connect
) -> None:
    conn = connect()
    async with crew(database) as at:
        for payload in ("first", "second"):
            app.sync.add_schedule(conn, "a", report.new(payload), every=Cron("0 2 * * *"), missed="skip")
            await tick(at)
            before = added(app, conn)[0].next_at
            assert before is not None
        make_due(conn, "a")
        assert await tick(at) == 1
        app.sync.add_schedule(conn, "a", report.new("third"), every=Cron("0 2 * * *"))
        assert await tick(at) == 0
        assert added(app, conn)[0].next_at == before
    assert conn.execute("SELECT payload ->> 'name' FROM holdfast.job").fetchall() == [("second",)]


async def test_those_of_the_code_and_those_that_were_added_stay_apart(
    app: Holdfast, report: Kind[..., Any], database: str, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    conn = connect()
    declared = PeriodicJob("code", report.new("code"), every=Every(3600))
    async with crew(database, periodic=[declared]) as at:
        await tick(at)
    with pytest.raises(HoldfastError, match="code: the code declares a schedule of this name"):
        app.sync.add_schedule(conn, "code", report.new("mine"), every=Every(60))
    app.sync.add_schedule(conn, "mine", report.new("mine"), every=Every(60))
    taken = PeriodicJob("mine", report.new("code"), every=Every(3600))
    async with crew(database, periodic=[declared, taken]) as at:
        await tick(at)
        make_due(conn, "mine")
        assert await tick(at) == 1
    assert "schedules were added under names that the code declares" in caplog.text
    assert conn.execute("SELECT payload ->> 'name' FROM holdfast.job").fetchall() == [("mine",)]
    found = {line.name: (line.schedule, line.added) for line in app.sync.list_schedules(conn)}
    assert (found["code"], found["mine"]) == (("every 3600s", False), ("every 60s", True))


async def test_one_that_the_code_renamed_ends_and_shows_it(
    app: Holdfast, report: Kind[..., Any], database: str, connect: Connect
) -> None:
    conn = connect()
    for name in ("old", "new"):
        async with crew(database, periodic=[PeriodicJob(name, report.new(name), every=Every(3600))]) as at:
            await tick(at)
            make_due(conn, "old")
            assert await tick(at) == (name == "old")
            served = {line.name: line.served for line in app.sync.list_schedules(conn)}
    assert (served["old"], served["new"]) == (False, True)
    assert app.sync.remove_schedule(conn, "old")


@pytest.mark.parametrize(
    ("text", "slots"), [("30 2 * * * Europe/Berlin", 3), ("30 * * * * Europe/Berlin", 72), ("every 3600s", 71)]
)
@pytest.mark.parametrize("change", [datetime(2030, 3, 30, 12, tzinfo=UTC), datetime(2030, 10, 26, 12, tzinfo=UTC)])
def test_looks_through_a_clock_change_find_each_slot_once(text: str, slots: int, change: datetime) -> None:
    """As workers look: every quarter of an hour through three days, at the slot that the row has."""
    now, next_at, ran = change, None, []
    while now < change + timedelta(days=3):
        look = SlotScan(text, now, next_at, skipped=None)
        if next_at is not None and next_at <= now:
            ran.append(next_at)
            next_at = look.following
        elif look.unset:
            next_at = look.following
        now += timedelta(minutes=15)
    assert len(ran) == len(set(ran)) == slots


async def test_the_same_on_an_async_connection(app: Holdfast, report: Kind[..., Any], database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database) as conn:
        assert await app.add_schedule(conn, "a", report.new("a"), every=Every(60))
        assert [line.name for line in await app.list_schedules(conn)] == ["a"]
        assert await app.remove_schedule(conn, "a")


def test_what_cannot_be_added_is_refused(app: Holdfast, report: Kind[..., Any], connect: Connect) -> None:
    conn, wrong = (
        connect(),
        [
            ("", Every(60), "name"),
            ("maintenance", Every(60), "a built-in runner has this name"),
            ("a", "every 60s", r"write every=Every\(3600\)"),
        ],
    )
    for name, every, states in wrong:
        with pytest.raises((HoldfastError, TypeError, ValueError), match=states):
            app.sync.add_schedule(conn, name, report.new("a"), every=every)  # type: ignore[arg-type]
