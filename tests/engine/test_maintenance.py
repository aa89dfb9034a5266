from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from holdfast import Holdfast
from holdfast._drivers import run_sync
from holdfast._engine.runner import Budget, Counts, PeriodicJob, Runner, Tick
from holdfast._engine.runners import maintenance
from holdfast._engine.runners.database import open_runner_database
from holdfast._engine.runners.maintenance import Maintenance
from holdfast._engine.runners.ticker import Limits
from holdfast._model.errors import HoldfastError
from holdfast._model.new_job import Envelope, NewJob
from holdfast._model.schedule import Every
from holdfast._store.archive import confirm_clock
from holdfast._store.chain import release_waiters
from holdfast._store.enqueue import enqueue_jobs
from holdfast._store.schedule import trigger_schedule
from holdfast._store.subscription import find_subscription, skip_subscription, subscribe
from tests.kit.clock import set_back
from tests.kit.fleet import MS, SOON, crew, make_due, runs
from tests.kit.waiting import until
from tests.kit.workers import enqueue, job, number, statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast import Job
    from tests.kit.fleet import Connect

KEPT = {
    "job_history": 14,
    "job_failed": 90,
    "attempt": 90,
    "run": 30,
    "tally": 90,
    "event": 7,
    "delivery": 30,
}


def add_day(conn: psycopg.Connection[Any], family: str, days_ago: int) -> str:
    """Make the partition of a day long ago, as if it had been there since."""
    day = datetime.now(UTC).date() - timedelta(days=days_ago)
    name = f"{family}_{day:%Y%m%d}"
    conn.execute(
        f"CREATE TABLE holdfast.{name} (LIKE holdfast.{family} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)".encode()
    )
    conn.execute(
        f"ALTER TABLE holdfast.{family}_days ATTACH PARTITION holdfast.{name} "
        f"FOR VALUES FROM ('{day} 00:00+00') TO ('{day + timedelta(days=1)} 00:00+00')".encode()
    )
    return name


def there(conn: psycopg.Connection[Any], *names: str) -> list[str]:
    return [
        name for name in names if conn.execute("SELECT to_regclass(%s)", [f"holdfast.{name}"]).fetchone() != (None,)
    ]


async def maintained(url: str, **budget: Any) -> dict[str, int]:
    async with open_runner_database(url, name="test", seconds=SOON) as site:
        return dict(await Maintenance(site).tick(Tick(name="maintenance", budget=Budget(**budget))))


@pytest.mark.parametrize("family", list(KEPT))
async def test_days_are_dropped_when_their_time_is_over(database: str, connect: Connect, family: str) -> None:
    conn = connect()
    kept = add_day(conn, family, KEPT[family])
    over = [add_day(conn, family, KEPT[family] + days) for days in (2, 3)]
    assert await maintained(database) == {"partitions_dropped": 2}
    assert there(conn, kept, *over) == [kept]
    assert await maintained(database) == {}


LEAP = timedelta(days=40)


@pytest.fixture
def expired(connect: Connect) -> list[str]:
    """A day of each family, an inbox message, a window and a worker, all of them expired by a clock that leapt."""
    conn = connect()
    conn.execute("INSERT INTO holdfast.inbox VALUES (now(), 'mail', 'm')")
    conn.execute("INSERT INTO holdfast.unique_window VALUES (now() + interval '1 day', 1, 'a', 'k')")
    conn.execute("INSERT INTO holdfast.worker (name) VALUES ('gone')")
    conn.execute("UPDATE holdfast.retention SET keep = '14 days'")
    conn.execute(
        "INSERT INTO holdfast.landmark SELECT now() - n * interval '1 minute', 0 FROM generate_series(0, 3000) n"
    )
    set_back(conn, -LEAP)
    return [add_day(conn, family, 38) for family in KEPT]


def rows(conn: psycopg.Connection[Any]) -> tuple[Any, ...]:
    tables = ("inbox", "unique_window", "worker")
    return tuple(number(conn, f"SELECT count(*) FROM holdfast.{table} WHERE true") for table in tables)


async def test_nothing_expires_after_a_leap_of_the_clock(
    database: str, connect: Connect, expired: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    conn = connect()
    async with open_runner_database(database, name="test", seconds=SOON) as site:
        maintenance = Maintenance(site)
        for _ in range(2):
            assert "partitions_dropped" not in await maintenance.tick(Tick(name="maintenance"))
    assert there(conn, *expired) == expired
    assert rows(conn) == (1, 1, 2)
    assert number(conn, "SELECT holdfast.drop_partition(%s)", expired[0]) is False, "by hand neither"
    assert (
        sum(logged.startswith("nothing expires until the server's clock has gone on") for logged in caplog.messages)
        == 1
    )


@pytest.mark.parametrize("confirmed", ["by a day", "by a person"])
async def test_a_leap_is_confirmed(database: str, connect: Connect, expired: list[str], confirmed: str) -> None:
    conn = connect()
    await maintained(database)
    if confirmed == "by a day":
        conn.execute("UPDATE holdfast.landmark SET at = at - interval '19 hours' WHERE at > now() - interval '1 hour'")
        await maintained(database)
        assert there(conn, *expired) == expired, "not yet"
        conn.execute("UPDATE holdfast.landmark SET at = at - interval '2 hours' WHERE at > now() - interval '1 day'")
    else:
        assert run_sync(conn, confirm_clock())
        assert not run_sync(conn, confirm_clock())
    assert (await maintained(database))["partitions_dropped"] == len(expired)
    assert rows(conn)[:2] == (0, 0)


async def test_retention_is_a_row(database: str, connect: Connect) -> None:
    conn = connect()
    day = add_day(conn, "job_failed", 200)
    conn.execute("UPDATE holdfast.retention SET keep = '365 days' WHERE family = 'job_failed'")
    assert await maintained(database) == {}
    conn.execute("DELETE FROM holdfast.retention WHERE family = 'job_failed'")
    assert await maintained(database) == {}
    assert there(conn, day) == [day]
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute("UPDATE holdfast.retention SET keep = '1 day' WHERE family = 'run'")


async def test_a_reader_delays_a_drop_and_no_session_waits_behind_it(
    database: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "COMMAND_SECONDS", 3.0)
    conn, reader = connect(), connect()
    day = add_day(conn, "attempt", 100)
    with reader.transaction():
        reader.execute("SELECT count(*) FROM holdfast.attempt")
        assert await maintained(database) == {}
        # Detaching waits, half done, and everybody else goes on.
        conn.execute("SET lock_timeout = '5s'")
        conn.execute("INSERT INTO holdfast.attempt (job_id, ended_at, outcome, attempt) VALUES (1, now(), 'retry', 1)")
        assert conn.execute("SELECT count(*) FROM holdfast.attempt").fetchone() == (1,)
        assert there(conn, day) == [day]
    assert await maintained(database) == {"partitions_dropped": 1}
    assert there(conn, day) == []


async def test_a_day_that_was_detached_but_not_dropped_is_dropped(database: str, connect: Connect) -> None:
    conn = connect()
    day = add_day(conn, "attempt", 100)
    conn.execute(f"ALTER TABLE holdfast.attempt_days DETACH PARTITION holdfast.{day}".encode())
    assert await maintained(database) == {"partitions_dropped": 1}
    assert there(conn, day) == []


async def test_a_day_that_cannot_be_dropped_stops_no_other(database: str, connect: Connect) -> None:
    conn = connect()
    kept, dropped = add_day(conn, "attempt", 101), add_day(conn, "attempt", 100)
    conn.execute(f"CREATE VIEW mine AS SELECT job_id FROM holdfast.{kept}".encode())
    with pytest.raises(HoldfastError, match="partitions_dropped"):
        await maintained(database)
    assert there(conn, kept, dropped) == [kept]


async def test_a_tick_is_bounded(database: str, connect: Connect) -> None:
    conn = connect()
    for days in range(20):
        add_day(conn, "attempt", 100 + days)
    assert await maintained(database, items=3) == {"partitions_dropped": 3}
    assert await maintained(database) == {"partitions_dropped": 12}


@pytest.fixture
def worker_url(database: str, connect: Connect) -> Iterator[str]:
    """The address of a user who has a worker's rights and owns nothing."""
    owner, name = connect(), sql.Identifier("test_maintainer")
    owner.execute(sql.SQL("CREATE ROLE {} LOGIN IN ROLE holdfast_worker").format(name))
    yield psycopg.conninfo.make_conninfo(database, user="test_maintainer")
    owner.execute(sql.SQL("DROP ROLE {}").format(name))


async def test_a_worker_that_owns_nothing_drops_what_is_over_and_nothing_else(
    worker_url: str, connect: Connect
) -> None:
    conn, reader = connect(), connect()
    over, kept = add_day(conn, "attempt", 100), add_day(conn, "attempt", 50)
    with reader.transaction():
        reader.execute("SELECT count(*) FROM holdfast.attempt")
        assert await maintained(worker_url) == {}
    with psycopg.connect(worker_url, autocommit=True) as worker:
        for name in (kept, "job", "retention", "x; DROP TABLE holdfast.job"):
            assert worker.execute("SELECT holdfast.drop_partition(%s)", [name]).fetchone() == (False,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            worker.execute("UPDATE holdfast.retention SET keep = '2 days'")
    assert await maintained(worker_url) == {"partitions_dropped": 1}
    assert there(conn, over, kept, "job") == [kept, "job"]


async def test_a_worker_that_owns_nothing_runs_runners(worker_url: str, connect: Connect) -> None:
    conn = connect()

    async def work(_: Tick) -> Counts:
        return {"done": 1}

    runner = Runner("work", work, every=Every(timedelta(hours=1)), singleton=True, at_start=False)
    periodic = PeriodicJob("job", NewJob[Any](Envelope("report"), "{}"), every=Every(timedelta(hours=1)))
    plenty = Limits(None, SOON)
    async with crew(worker_url, runner, periodic=[periodic]) as at:
        for name in ("work", "schedules", "reaper", "maintenance"):
            assert (await at.ticker.tick(at.runners[name], plenty)).outcome in {"completed", "skipped"}
        for name in ("work", "job", "maintenance"):
            make_due(conn, name)
        for name in ("work", "schedules", "reaper", "maintenance"):
            assert (await at.ticker.tick(at.runners[name], plenty)).outcome == "completed"
    assert [row[:3] for row in runs(conn)] == [
        ("work", "completed", {"done": 1}),
        ("schedules", "completed", {"enqueued": 1}),
        ("maintenance", "completed", None),
    ]


async def within_a_minute(conn: psycopg.Connection[Any]) -> None:
    """Return when the next minute is not about to begin."""
    await until(lambda: conn.execute("SELECT extract(second FROM clock_timestamp()) < 55").fetchone() == (True,))


async def test_tallies_are_folded_and_their_sums_stay(database: str, connect: Connect) -> None:
    conn = connect()
    await within_a_minute(conn)
    conn.execute(
        """INSERT INTO holdfast.tally (minute, jobs, times, outcome, queue, kind)
        SELECT date_trunc('minute', now()) - minute * interval '1 minute', n, ARRAY[512 * n + 70, 512 * n + 256 + n],
            'completed', 'default', 'kind' || kind
        FROM generate_series(0, 5) AS minute, generate_series(1, 2) AS kind, generate_series(1, 10) AS n"""
    )
    sums = (
        "SELECT minute, kind, c & 511, sum(c >> 9), (SELECT sum(o.jobs) FROM holdfast.tally o"
        " WHERE (o.minute, o.kind) = (t.minute, t.kind)) FROM holdfast.tally t, unnest(times) AS c"
        " GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    )
    before = conn.execute(sums).fetchall()
    counts = await maintained(database)
    # The last two minutes and this one are left alone.
    assert counts == {"tallies_folded": 3 * 2 * 9}
    assert conn.execute(sums).fetchall() == before
    assert conn.execute("SELECT count(*) FROM holdfast.tally").fetchone() == (3 * 2 * 10 + 3 * 2,)
    assert await maintained(database) == {}


async def test_what_is_past_is_folded_into_minutes_quarters_hours_and_days(database: str, connect: Connect) -> None:
    conn = connect()
    conn.execute(
        """CREATE TABLE holdfast.tally_past PARTITION OF holdfast.tally_days
        FOR VALUES FROM (date_trunc('day', now() - interval '11 days', 'UTC'))
        TO (date_trunc('day', now() - interval '1 day', 'UTC'))"""
    )
    conn.execute(
        """INSERT INTO holdfast.tally (minute, jobs, times, outcome, queue, kind)
        SELECT minute, 1, ARRAY[512 + 3, 512 + 256 + 4], 'completed', 'q', 'k' FROM (
            SELECT date_trunc('day', now() - interval '10 days', 'UTC') + m * interval '20 minutes'
                FROM generate_series(0, 143) AS m
            UNION ALL SELECT date_trunc('hour', now(), 'UTC') - interval '48 hours' + m * interval '10 minutes'
                FROM generate_series(0, 5) AS m
            UNION ALL SELECT date_trunc('hour', now(), 'UTC') - interval '8 hours' + m * interval '5 minutes'
                FROM generate_series(0, 5) AS m
            UNION ALL SELECT date_trunc('hour', now(), 'UTC') - interval '4 hours' + m * interval '1 minute'
                FROM generate_series(0, 9) AS m) AS t (minute)"""
    )
    await maintained(database)
    left = conn.execute("SELECT jobs, times FROM holdfast.tally ORDER BY minute").fetchall()
    assert left == [(n, [512 * n + 3, 512 * n + 256 + 4]) for n in (72, 72, 6, 3, 3, 5, 5)]
    assert await maintained(database) == {}


async def test_a_day_may_have_more_jobs_than_an_integer_holds(database: str, connect: Connect) -> None:
    conn = connect()
    conn.execute(
        """INSERT INTO holdfast.tally (minute, jobs, outcome, queue, kind)
        SELECT date_trunc('minute', now()) - interval '5 minutes', 2000000000, 'completed', 'q', 'k'
        FROM generate_series(1, 3)"""
    )
    assert await maintained(database) == {"tallies_folded": 2}
    assert conn.execute("SELECT jobs FROM holdfast.tally").fetchall() == [(6_000_000_000,)]


async def test_a_step_that_fails_holds_up_no_other_and_is_named(database: str, connect: Connect) -> None:
    conn = connect()
    conn.execute(
        """INSERT INTO holdfast.tally (minute, jobs, outcome, queue, kind)
        SELECT date_trunc('minute', now()) - interval '5 minutes', 1, 'retry', 'q', 'k' FROM generate_series(1, 2)"""
    )
    conn.execute(
        """CREATE FUNCTION holdfast.refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'not today'; END $$"""
    )
    conn.execute(
        "CREATE TRIGGER refuse BEFORE DELETE ON holdfast.tally FOR EACH ROW EXECUTE FUNCTION holdfast.refuse()"
    )
    conn.execute("INSERT INTO holdfast.sweep VALUES (now() - interval '1 hour', '5 s')")
    with pytest.raises(HoldfastError, match=r"^tallies_folded: not today$"):
        await maintained(database)
    assert conn.execute("SELECT count(*) FROM holdfast.sweep").fetchone() == (0,)


async def test_a_waiter_that_missed_an_end_is_notified(
    database: str, connect: Connect, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It should never happen: here by hand. Every tick goes on where the last one ended."""
    monkeypatch.setattr(maintenance, "MOST_BLOCKERS", 1)
    conn = connect()
    alive, gone = enqueue(conn, job(), job())
    first, second = enqueue(conn, job(after=[alive]), job(after=[gone]))
    conn.execute("DELETE FROM holdfast.job WHERE id = %s", [gone])
    async with open_runner_database(database, name="test", seconds=SOON) as site:
        maintenance_ = Maintenance(site)
        for counts in ({}, {"blockers_repaired": 1}, {}):
            assert await maintenance_.tick(Tick(name="maintenance", budget=Budget())) == counts
    assert run_sync(conn, release_waiters()) == 1
    assert statuses(conn) == {alive: "pending", first: "blocked", second: "pending"}
    (logged,) = [record for record in caplog.records if "had ended" in record.message]
    assert (logged.levelname, vars(logged)["chains"]) == ("WARNING", 1)


async def test_folding_is_bounded(database: str, connect: Connect) -> None:
    conn = connect()
    conn.execute(
        """INSERT INTO holdfast.tally (minute, jobs, outcome, queue, kind)
        SELECT date_trunc('minute', now()) - minute * interval '1 minute', 1, 'retry', 'q', 'k'
        FROM generate_series(10, 80) AS minute, generate_series(1, 2)"""
    )
    assert await maintained(database, items=5) == {"tallies_folded": 5}
    assert await maintained(database) == {"tallies_folded": 60}
    assert await maintained(database) == {"tallies_folded": 71 - 65}


async def test_old_sleepers_are_forgotten(database: str, connect: Connect) -> None:
    conn = connect()
    conn.execute(
        """INSERT INTO holdfast.sleeper (until, worker_id, queue, kinds)
        SELECT now() + seconds * interval '1 second', 1, 'default', '{}'
        FROM unnest(ARRAY[-1800, -1200, -600, 30, 600]) AS seconds"""
    )
    conn.execute(
        """INSERT INTO holdfast.sweep
        SELECT now() + seconds * interval '1 second', '5 s' FROM unnest(ARRAY[-3600, 30, 3600]) AS seconds"""
    )
    # One that is far ahead was written before the clock was set back.
    assert await maintained(database) == {"sleepers_deleted": 6}
    assert conn.execute("SELECT count(*) FROM holdfast.sleeper").fetchone() == (1,)
    assert conn.execute("SELECT count(*) FROM holdfast.sweep").fetchone() == (1,)


def publish_ago(conn: psycopg.Connection[Any], days_ago: int) -> str:
    """Have an event in the log that was published so many days ago; return its partition."""
    name = add_day(conn, "event", days_ago)
    conn.execute(
        """WITH own AS MATERIALIZED (SELECT pg_current_xact_id() AS xid)
        INSERT INTO holdfast.event (id, published_at, xid, shard, topic, payload)
        SELECT nextval('holdfast.event_id_seq'), date_trunc('day', now(), 'UTC') - %s * interval '1 day', xid, 0, 't',
            '{}' FROM own""",
        [days_ago],
    )
    return name


@pytest.mark.parametrize("owner", [True, False])
async def test_a_day_of_events_stays_until_every_subscription_is_past_it(
    database: str, connect: Connect, worker_url: str, caplog: pytest.LogCaptureFixture, owner: bool
) -> None:
    conn, url = connect(), database if owner else worker_url
    unread = publish_ago(conn, 10)
    run_sync(conn, subscribe("slow", target="t", topics=(), partitions=2, beginning=True))
    subscription = run_sync(conn, subscribe("quick", target="t", topics=(), partitions=1, beginning=False)).id
    assert await maintained(url) == {"days_unread": 1}
    (logged,) = [record for record in caplog.records if "past their time" in record.message]
    assert logged.levelname == "WARNING"
    assert "`skip`" in logged.message
    assert vars(logged)["partitions"] == [unread]
    assert conn.execute("SELECT holdfast.drop_partition(%s)", [unread]).fetchone() == (False,)
    assert there(conn, unread) == [unread]
    slow = run_sync(conn, find_subscription("slow"))
    assert slow is not None
    run_sync(conn, skip_subscription(slow))
    assert await maintained(url) == {"partitions_dropped": 1}
    assert there(conn, unread) == []
    assert subscription


async def test_a_parked_event_keeps_its_own_day_and_no_other(database: str, connect: Connect) -> None:
    conn = connect()
    subscription = run_sync(conn, subscribe("s", target="t", topics=(), partitions=1, beginning=True)).id
    days = [publish_ago(conn, days_ago) for days_ago in (11, 10, 9)]
    run_sync(conn, skip_subscription(subscription))
    parked = f"""INSERT INTO holdfast.parked (subscription_id, event_id, partition, holds_key)
        SELECT %s, id, 0, false FROM holdfast.{days[1]}"""
    conn.execute(parked.encode(), [subscription])
    assert await maintained(database) == {"partitions_dropped": 2, "days_unread": 1}
    assert [there(conn, day) for day in days] == [[], [days[1]], []]
    conn.execute("DELETE FROM holdfast.parked")
    assert await maintained(database) == {"partitions_dropped": 1}


async def test_a_warning_is_logged_once_and_counted_every_time(
    database: str, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    conn = connect()
    publish_ago(conn, 10)
    run_sync(conn, subscribe("slow", target="t", topics=(), partitions=1, beginning=True))
    async with open_runner_database(database, name="test", seconds=SOON) as site:
        maintenance_ = Maintenance(site)
        for _ in range(3):
            assert await maintenance_.tick(Tick(name="maintenance", budget=Budget())) == {"days_unread": 1}
        assert caplog.text.count("past their time") == 1
        publish_ago(conn, 9)
        assert await maintenance_.tick(Tick(name="maintenance", budget=Budget())) == {"days_unread": 2}
        assert caplog.text.count("past their time") == 2


async def test_departed_members_and_old_positions_are_deleted(worker_url: str, connect: Connect) -> None:
    conn = connect()
    made = run_sync(conn, subscribe("s", target="t", topics=(), partitions=2, beginning=False)).id
    conn.execute(
        """INSERT INTO holdfast.position (subscription_id, partition, seq, at, seen, seen_id, seen_top, seen_xid)
        SELECT subscription_id, partition, seq + n, now() - interval '1 hour', seen, seen_id, seen_top, seen_xid
        FROM holdfast.position, generate_series(1, 100) AS n"""
    )
    last = (
        "SELECT partition, max(seq), count(*) FROM holdfast.position WHERE subscription_id = %s GROUP BY 1 ORDER BY 1"
    )
    old, new = "now() - interval '2 minutes'", "now() + interval '10 seconds'"
    for moment in (old, new):
        conn.execute(f"INSERT INTO holdfast.reader (until, worker_id, topics) SELECT {moment}, 1, '{{}}'".encode())
        conn.execute(f"INSERT INTO holdfast.member (until, worker_id, subscription_id) SELECT {moment}, 1, 1".encode())
        conn.execute(f"INSERT INTO holdfast.watcher (until, chain_id, listener) SELECT {moment}, 1, 'l'".encode())
    assert await maintained(worker_url) == {"sleepers_deleted": 3, "positions_deleted": 2 * 89}
    assert conn.execute(last, [made]).fetchall() == [(0, 101, 12), (1, 101, 12)]
    for table in ("reader", "member", "watcher"):
        assert conn.execute(f"SELECT count(*) FROM holdfast.{table}".encode()).fetchone() == (1,)
    assert await maintained(worker_url) == {}


def add_worker(conn: psycopg.Connection[Any], stopped: int | None, silent: int = 0) -> int:
    """A worker that stopped and sent its last heartbeat so many days ago."""
    row = conn.execute(
        """INSERT INTO holdfast.worker (name, stopped_at, heartbeat_at)
        VALUES ('w', now() - %s * interval '1 day', now() - %s * interval '1 day') RETURNING id""",
        [stopped, silent],
    ).fetchone()
    assert row is not None
    return int(row[0])


def workers(conn: psycopg.Connection[Any]) -> set[int]:
    return {number for (number,) in conn.execute("SELECT id FROM holdfast.worker WHERE name = 'w'")}


async def test_workers_long_gone_are_forgotten_unless_they_hold_something(
    database: str, connect: Connect, worker_url: str
) -> None:
    conn, other = connect(), connect()
    gone = [add_worker(conn, 91, 91), add_worker(conn, None, 91), add_worker(conn, 91, 200)]
    kept = [add_worker(conn, 89, 200), add_worker(conn, None, 89), add_worker(conn, None), add_worker(conn, 0)]
    runs_a_job, runs_a_slot, locked = (add_worker(conn, None, 91) for _ in range(3))
    conn.execute(
        """INSERT INTO holdfast.job (queue, kind, created_at, available_at, status, attempt, locked_by, lock_token,
            locked_until)
        VALUES ('q', 'k', now(), now(), 'processing', 1, %s, 1, now() - interval '91 days')""",
        [runs_a_job],
    )
    conn.execute(
        """INSERT INTO holdfast.schedule (name, what, schedule, locked_by, lock_token, locked_until)
        VALUES ('s', 'runner', 'every 60s', %s, 1, now() - interval '91 days')""",
        [runs_a_slot],
    )
    with other.transaction():
        other.execute("SELECT FROM holdfast.worker WHERE id = %s FOR UPDATE", [locked])
        assert await maintained(worker_url) == {"workers_deleted": len(gone)}
    assert workers(conn) == {*kept, runs_a_job, runs_a_slot, locked}
    conn.execute("DELETE FROM holdfast.job")
    conn.execute("DELETE FROM holdfast.schedule")
    assert await maintained(database) == {"workers_deleted": 3}
    assert workers(conn) == set(kept)


async def test_workers_are_kept_as_long_as_the_history_that_names_them(database: str, connect: Connect) -> None:
    conn = connect()
    worker = add_worker(conn, 91, 91)
    conn.execute("UPDATE holdfast.retention SET keep = '365 days' WHERE family = 'job_failed'")
    assert await maintained(database) == {}
    conn.execute("DELETE FROM holdfast.retention WHERE family = 'job_failed'")
    assert await maintained(database) == {}, "kept for ever"
    assert workers(conn) == {worker}


async def test_forgetting_workers_is_bounded(database: str, connect: Connect) -> None:
    conn = connect()
    conn.execute(
        """INSERT INTO holdfast.worker (name, stopped_at, heartbeat_at)
        SELECT 'w', at, at FROM generate_series(1, 1500), LATERAL (SELECT now() - interval '91 days') AS a (at)"""
    )
    assert [await maintained(database) for _ in range(3)] == [{"workers_deleted": 1000}, {"workers_deleted": 500}, {}]


async def test_it_runs_once_a_minute_in_the_fleet(database: str, connect: Connect) -> None:
    conn = connect()
    add_day(conn, "attempt", 100)
    plenty = Limits(None, SOON)
    await within_a_minute(conn)
    async with crew(database) as at, crew(database) as other:
        assert (await at.ticker.tick(at.runners["maintenance"], plenty)).why == "not due"
        make_due(conn, "maintenance")
        assert (await at.ticker.tick(at.runners["maintenance"], plenty)).counts == {"partitions_dropped": 1}
        assert (await other.ticker.tick(other.runners["maintenance"], plenty)).why == "not due"
    assert [row[:3] for row in runs(conn)] == [("maintenance", "completed", {"partitions_dropped": 1})]


async def test_endings_do_not_wait_for_it(database: str, connect: Connect) -> None:
    """Somebody holds up the count of live jobs: jobs are completed all the same."""
    conn, holder = connect(), connect()
    app = Holdfast(database)

    @app.job("act")
    async def act(job: Job[None]) -> None: ...

    def counting_waits() -> bool:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'take_census'"
        return bool(number(conn, waiting))

    async with app.worker(idle_max=100 * MS, idle_min=100 * MS, jitter=0 * MS):
        await until(lambda: number(conn, "SELECT count(*) FROM holdfast.schedule WHERE name = 'maintenance'"))
        with holder.transaction():
            holder.execute("LOCK TABLE holdfast.census IN ACCESS EXCLUSIVE MODE")
            run_sync(conn, trigger_schedule("maintenance"))
            await until(counting_waits)
            run_sync(conn, enqueue_jobs([act.new() for _ in range(5)]))
            await until(lambda: number(conn, "SELECT count(*) FROM holdfast.job_history") == 5)
            assert counting_waits()
