from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._engine.link import Link
from holdfast._engine.runner import PeriodicJob
from holdfast._engine.runners.ticker import Limits
from holdfast._model.new_job import Envelope, NewJob
from holdfast._model.schedule import Cron, Every
from holdfast._model.unique import Unique
from holdfast._store.schedule import pause_schedule, trigger_schedule
from tests.kit.fleet import MS, SOON, background, crew, fast, make_due, runs, schedule
from tests.kit.waiting import until
from tests.kit.workers import number

if TYPE_CHECKING:
    from datetime import datetime

    import psycopg

    from holdfast._store.statement import Statement
    from tests.kit.fleet import Connect

PLENTY = Limits(None, SOON)
PAYLOAD = '{"b": 1.50, "a":  "ż\\u0020", "b": 2}'


def periodic(name: str = "nightly", payload: str = "{}", **options: Any) -> PeriodicJob:
    return PeriodicJob(name, NewJob[Any](Envelope("report"), payload).options(**options), every=Cron("0 2 * * *"))


def jobs(conn: psycopg.Connection[Any], columns: str = "kind, payload::text, unique_key") -> list[tuple[Any, ...]]:
    return conn.execute(f"SELECT {columns} FROM holdfast.job ORDER BY id".encode()).fetchall()


async def test_each_slot_enqueues_its_job_once(database: str, connect: Connect) -> None:
    conn = connect()
    job = periodic(payload=PAYLOAD, priority=2)
    async with crew(database, periodic=[job]) as at, crew(database, periodic=[job]) as other:
        assert not (await at.ticker.tick(at.runners["schedules"], PLENTY)).busy
        assert jobs(conn) == []
        make_due(conn, "nightly", ago=100_000)
        (slot,) = schedule(conn, "nightly", "to_char(next_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')")
        ticks = await asyncio.gather(
            at.ticker.tick(at.runners["schedules"], PLENTY), other.ticker.tick(other.runners["schedules"], PLENTY)
        )
        assert sorted(ticked.counts["enqueued"] for ticked in ticks) == [0, 1]
        assert jobs(conn) == [("report", PAYLOAD, f"schedule:nightly:{slot}")]
        assert jobs(conn, "priority") == [(2,)]
        assert not (await at.ticker.tick(at.runners["schedules"], PLENTY)).busy
    assert schedule(conn, "nightly", "last_at < now(), next_at > now()") == (True, True)
    assert runs(conn) == [("schedules", "completed", {"enqueued": 1}, None)]


async def test_a_unique_key_of_its_own_stays(database: str, connect: Connect) -> None:
    conn = connect()
    async with crew(database, periodic=[periodic(unique=Unique("one report"))]) as at:
        await at.ticker.tick(at.runners["schedules"], PLENTY)
        for _ in range(2):
            make_due(conn, "nightly")
            await at.ticker.tick(at.runners["schedules"], PLENTY)
    assert jobs(conn) == [("report", "{}", "one report")]


async def test_both_or_neither(database: str, connect: Connect) -> None:
    """When the job cannot be enqueued the slot does not move on."""
    conn = connect()
    async with crew(database, periodic=[periodic("broken"), periodic("fine")]) as at:
        await at.ticker.tick(at.runners["schedules"], PLENTY)
        conn.execute("""UPDATE holdfast.schedule SET job = '{"kind": "x", "priority": 77}' WHERE name = 'broken'""")
        for name in ("broken", "fine"):
            make_due(conn, name, ago=60)
        before = schedule(conn, "broken", "next_at, last_at")
        ticked = await at.ticker.tick(at.runners["schedules"], PLENTY)
    assert ticked.outcome == "failed"
    assert schedule(conn, "broken", "next_at, last_at") == before
    # One that is broken stops no other.
    assert [row[0] for row in jobs(conn)] == ["report"]


async def test_a_job_that_a_trigger_refuses_stops_no_other(database: str, connect: Connect) -> None:
    conn = connect()
    async with crew(database, periodic=[periodic("broken"), periodic("fine")]) as at:
        await at.ticker.tick(at.runners["schedules"], PLENTY)
        conn.execute("""UPDATE holdfast.schedule SET job = '{"kind": "poison"}' WHERE name = 'broken'""")
        conn.execute(
            "CREATE FUNCTION poisoned() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not with us'; END $$;"
            " CREATE TRIGGER poisoned BEFORE INSERT ON holdfast.job FOR EACH ROW WHEN (NEW.kind = 'poison')"
            " EXECUTE FUNCTION poisoned()"
        )
        for name in ("broken", "fine"):
            make_due(conn, name, ago=60)
        assert (await at.ticker.tick(at.runners["schedules"], PLENTY)).outcome == "failed"
    assert [row[0] for row in jobs(conn)] == ["report"]


async def test_pausing_and_triggering(database: str, connect: Connect) -> None:
    conn = connect()
    async with crew(database, periodic=[periodic()]) as at:
        runner = at.runners["schedules"]
        await at.ticker.tick(runner, PLENTY)
        run_sync(conn, pause_schedule("nightly"))
        make_due(conn, "nightly")
        assert not (await at.ticker.tick(runner, PLENTY)).busy
        run_sync(conn, trigger_schedule("nightly"))
        assert (await at.ticker.tick(runner, PLENTY)).counts == {"enqueued": 1}
        assert not (await at.ticker.tick(runner, PLENTY)).busy


async def test_what_the_code_no_longer_declares_does_nothing_and_what_was_made_by_hand_does(
    database: str, connect: Connect
) -> None:
    conn = connect()
    async with crew(database, periodic=[periodic("old")]) as at:
        await at.ticker.tick(at.runners["schedules"], PLENTY)
    conn.execute(
        """INSERT INTO holdfast.schedule (name, what, schedule, job, next_at)
        VALUES ('by hand', 'job', 'every 60s', ' {"kind": "hand", "payload": {}}', now())"""
    )
    make_due(conn, "old")
    async with crew(database, periodic=[periodic("new")]) as at:
        await at.ticker.tick(at.runners["schedules"], PLENTY)
    assert [row[0] for row in jobs(conn)] == ["hand"]


async def test_a_changed_job_is_stored_and_the_items_are_kept_to(database: str, connect: Connect) -> None:
    conn = connect()
    for payload in ("{}", '{"a":1}'):
        async with crew(database, periodic=[periodic(name, payload) for name in "abc"]) as at:
            for _ in range(2):
                await at.ticker.tick(at.runners["schedules"], PLENTY)
            for name in "abc":
                make_due(conn, name)
            assert (await at.ticker.tick(at.runners["schedules"], Limits(2, SOON))).counts == {"enqueued": 2}
            assert (await at.ticker.tick(at.runners["schedules"], PLENTY)).counts == {"enqueued": 1}
    assert [row[1] for row in jobs(conn)] == ["{}"] * 3 + ['{"a":1}'] * 3


async def test_many_slots_move_on_in_few_statements(
    database: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn = connect()
    names = [f"job{number}" for number in range(300)]
    ran: list[str] = []
    run = Link.run

    async def counted(link: Link, statement: Statement[Any]) -> Any:
        ran.append(statement.sql)
        return await run(link, statement)

    async with crew(database, periodic=[periodic(name) for name in names]) as at:
        runner = at.runners["schedules"]
        monkeypatch.setattr(Link, "run", counted)
        await at.ticker.tick(runner, PLENTY)
        conn.execute(
            "UPDATE holdfast.schedule SET next_at = clock_timestamp() - interval '1 second' WHERE what = 'job'"
        )
        assert (await at.ticker.tick(runner, PLENTY)).counts == {"enqueued": 300}
    assert len(ran) < 15, ran
    assert len(jobs(conn)) == 300
    assert number(conn, "SELECT count(*) FROM holdfast.schedule WHERE what = 'job' AND next_at > now()") == 300


async def test_a_schedule_that_cannot_be_read_stops_no_other(database: str, connect: Connect) -> None:
    conn = connect()
    async with crew(database, periodic=[periodic("broken"), periodic("fine")]) as at:
        await at.ticker.tick(at.runners["schedules"], PLENTY)
        conn.execute("UPDATE holdfast.schedule SET schedule = 'now and then' WHERE name = 'broken'")
        for name in ("broken", "fine"):
            make_due(conn, name)
        ticked = await at.ticker.tick(at.runners["schedules"], PLENTY)
    assert ticked.outcome == "failed"
    assert len(jobs(conn)) == 1


async def test_in_background_slots_come_in_time(database: str, connect: Connect) -> None:
    conn = connect()
    often = PeriodicJob("often", NewJob[Any](Envelope("report"), "{}"), every=Every(timedelta(milliseconds=80)))
    settings = fast(idle_min=60_000 * MS, idle_max=60_000 * MS)
    async with (
        background(database, names=["schedules"], periodic=[often], settings=settings),
        background(database, names=["schedules"], periodic=[often], settings=settings),
    ):
        await until(lambda: len(jobs(conn)) >= 8)
    keys = [row[2] for row in jobs(conn)]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("every", [Every(timedelta(minutes=2)), Cron("*/5 * * * *", tz="Asia/Tokyo")])
async def test_next_is_worked_out_from_the_clock_of_the_database(database: str, connect: Connect, every: Any) -> None:
    conn = connect()
    before: datetime = number(conn, "SELECT clock_timestamp()")
    job = PeriodicJob("tokyo", NewJob[Any](Envelope("report"), "{}"), every=every)
    async with crew(database, periodic=[job]) as at:
        ticked = await at.ticker.tick(at.runners["schedules"], PLENTY)
    next_at, now = schedule(conn, "tokyo", "next_at, now()")
    assert next_at in {every.next(before), every.next(now)}
    assert ticked.next_look is not None
    assert 0 <= ticked.next_look <= 300
