"""After the server's clock was set back, nothing waits for the times that it had written before."""

from __future__ import annotations

import logging
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Cron, Every
from holdfast._drivers import run_sync
from holdfast._engine.jobs.reap import Reaper, ReapSchedule
from holdfast._engine.link import Link
from holdfast._engine.own_row import OwnRow
from holdfast._engine.report.transition import Transitions
from holdfast._engine.runner import PeriodicJob, Runner, Tick
from holdfast._engine.runners.ticker import Limits
from holdfast._model.new_job import Envelope, NewJob
from holdfast._model.retry import Retry
from holdfast._model.work import Lease
from holdfast._store.archive import Period, start_export
from holdfast._store.lease import Held, isolate_worker, reap_jobs, renew_leases, shorten_leases
from holdfast._store.maintenance import delete_sleepers, delete_sweeps, set_back_jobs
from holdfast._store.schedule import list_schedules
from holdfast._store.subscription import join_subscription, subscribe
from holdfast._store.worker import beat_worker, ensure_partitions, register_worker
from tests.kit.clock import set_back
from tests.kit.fleet import SOON, crew, schedule
from tests.kit.workers import Worker, enqueue, job, number

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.fleet import Connect

PLENTY = Limits(None, SOON)
LEASE = timedelta(minutes=1)
EXCURSION = timedelta(days=40)


async def nothing(tick: Tick) -> None:
    """Do nothing."""


@pytest.mark.parametrize("every", [Every(timedelta(days=300)), Cron("17 3 29 2 *")], ids=["interval", "crontab"])
async def test_the_next_slot_is_one_interval_away(
    database: str, connect: Connect, every: Every | Cron, caplog: pytest.LogCaptureFixture
) -> None:
    conn = connect()
    runner = Runner("bill", nothing, every=every, at_start=False)
    report = PeriodicJob("report", NewJob[Any](Envelope("report"), "{}"), every=every)
    async with crew(database, runner, periodic=[report]) as at:
        both = (runner, at.runners["schedules"])
        for each in both:
            await at.ticker.tick(each, PLENTY)
        before = run_sync(conn, list_schedules())
        set_back(conn, EXCURSION)
        with caplog.at_level(logging.WARNING):
            for each in both:
                await at.ticker.tick(each, PLENTY)
    assert [line.next_at for line in run_sync(conn, list_schedules())] == [line.next_at for line in before]
    reported = [output for output in caplog.messages if output.startswith("the clock was set back")]
    assert sorted(output.split("=")[1] for output in reported) == ["bill slot", "report slot"]
    assert number(conn, "SELECT count(*) FROM holdfast.job") == 0, "no slot ran early"


@pytest.fixture
def lost(connect: Connect) -> Worker:
    """A worker that died, holding a job, a slot and a subscription, when the clock was ahead."""
    worker = Worker(connect())
    enqueue(worker.conn, job())
    worker.claim()
    run_sync(worker.conn, subscribe("mails", target="k", topics=[], partitions=1, beginning=False))
    assert run_sync(worker.conn, join_subscription(1, worker.id, lease_ms=60_000))
    assert run_sync(worker.conn, isolate_worker(worker.id, 60))
    worker.conn.execute(
        "INSERT INTO holdfast.schedule (name, what, schedule, next_at, slot_at, locked_by, lock_token, locked_until) "
        "VALUES ('bill', 'runner', 'every 60s', now(), now(), %s, 1, now() + interval '1 minute')",
        [worker.id],
    )
    set_back(worker.conn, EXCURSION)
    return worker


async def test_leases_of_a_dead_worker_end_one_lease_from_now(lost: Worker, caplog: pytest.LogCaptureFixture) -> None:
    conn = lost.conn
    other = run_sync(conn, register_worker("other", queues=[], kinds=[]))
    assert not run_sync(conn, isolate_worker(other, 60))
    async with Link(conn.info.dsn, timeout=SOON) as link:
        reaper = Reaper(
            link, OwnRow(other), ReapSchedule(1.0, 0.0), Transitions("", ()), retries={"k": Retry()}, default=Retry()
        )
        with caplog.at_level(logging.WARNING):
            assert await reaper.reap() == []
            assert await reaper.reap() == []
    assert caplog.messages == ["the clock was set back: leases_shortened_of=1 jobs_due_now=0"]
    near = f"BETWEEN now() + interval '50 seconds' AND now() + interval '{LEASE.total_seconds()} seconds'"
    assert number(conn, f"SELECT locked_until {near} FROM holdfast.job")
    assert schedule(conn, "bill", f"locked_until {near}") == (True,)
    assert number(
        conn, f"SELECT alone_until {near} AND heartbeat_at <= now() FROM holdfast.worker WHERE id = {lost.id}"
    )
    joined = run_sync(conn, join_subscription(1, other, lease_ms=60_000))
    assert joined is not None
    assert (joined.share, len(joined.held)) == (1, 1), "a dead member holds nothing"


@pytest.mark.parametrize("sign", ["a heartbeat", "a death", "maintenance"])
async def test_jobs_of_a_clock_that_was_ahead_are_due(connect: Connect, sign: str) -> None:
    worker = Worker(connect())
    conn = worker.conn
    before, promoted, suspect, dated = enqueue(conn, job(), job(), job(), job())
    conn.execute("INSERT INTO holdfast.landmark VALUES (now() - interval '10 minutes', %s)", [dated])
    at_once, later, retried, begun, followed = enqueue(conn, job(), job(delay=timedelta(days=1)), job(), job(), job())
    run_sync(conn, ensure_partitions(60))
    conn.execute(
        "INSERT INTO holdfast.attempt (job_id, ended_at, outcome, attempt) VALUES (%s, now() + %s, 'retry', 1)",
        [retried, EXCURSION],
    )
    shift = "UPDATE holdfast.job SET available_at = available_at + %s, created_at = created_at + %s WHERE id = %s"
    for moved in (at_once, later, begun, followed):
        conn.execute(shift, [EXCURSION, EXCURSION, moved])
    # They waited for others, which ended by that clock.
    conn.execute(shift, [EXCURSION, timedelta(0), promoted])
    conn.execute(shift, [timedelta(seconds=1), timedelta(0), followed])
    conn.execute(shift, [timedelta(hours=2), timedelta(0), suspect])
    conn.execute(shift, [EXCURSION / 2, timedelta(0), dated])
    conn.execute("UPDATE holdfast.job SET attempt = 1 WHERE id = %s", [begun])
    key = conn.execute("SELECT created_at FROM holdfast.job WHERE id = %s", [begun]).fetchone()
    conn.execute(shift, [EXCURSION + timedelta(hours=1), timedelta(0), retried])
    conn.execute("UPDATE holdfast.job SET later = true WHERE id = %s", [retried])
    if sign == "maintenance":
        conn.execute("INSERT INTO holdfast.landmark VALUES (now() + %s, %s)", [EXCURSION, begun])
    else:
        conn.execute("UPDATE holdfast.worker SET heartbeat_at = heartbeat_at + %s", [EXCURSION])
    if sign == "a heartbeat":
        run_sync(conn, beat_worker(worker.id, {}))
    async with Link(conn.info.dsn, timeout=SOON) as link:
        reaper = Reaper(
            link, OwnRow(worker.id + 1), ReapSchedule(1.0, 0.0), Transitions("", ()), retries={}, default=Retry()
        )
        await reaper.reap()
    due = dict(conn.execute("SELECT id, available_at - now() FROM holdfast.job").fetchall())
    assert due[before] <= due[at_once] <= timedelta(0)
    assert due[begun] <= timedelta(0)
    assert due[promoted] <= timedelta(0)
    assert due[followed] <= timedelta(0)
    assert due[suspect] > timedelta(hours=1), "a retry since"
    assert due[dated] > EXCURSION / 3, "was due by that clock, and is a date"
    assert conn.execute("SELECT created_at FROM holdfast.job WHERE id = %s", [begun]).fetchone() == key
    assert timedelta(0) < due[retried] <= timedelta(hours=1)
    assert due[later] > EXCURSION, "that may be a date"
    assert number(conn, "SELECT count(*) FROM holdfast.landmark WHERE at > now()") == 0
    assert not run_sync(conn, reap_jobs({}, worker=worker.id)).set_back


@pytest.mark.parametrize(
    "made",
    [
        "status = 'blocked', available_at = now() + %(ahead)s, created_at = now() + %(ahead)s",
        "available_at = now() + %(ahead)s",
    ],
    ids=["meanwhile", "before"],
)
def test_a_job_that_is_locked_is_due_after_a_later_pass(connect: Connect, made: str) -> None:
    conn, holder = connect(), connect()
    enqueue(conn, job())
    conn.execute(f"UPDATE holdfast.job SET {made}".encode(), {"ahead": EXCURSION})
    conn.execute("INSERT INTO holdfast.landmark VALUES (now() + %s, 0)", [EXCURSION])
    with holder.transaction():
        holder.execute("SELECT FROM holdfast.job FOR UPDATE")
        assert run_sync(conn, set_back_jobs(since=0, limit=100)).rows == 0
    assert run_sync(conn, set_back_jobs(since=0, limit=100)).rows == 1
    assert number(conn, "SELECT available_at <= now() FROM holdfast.job")


def test_a_live_worker_keeps_its_leases(lost: Worker) -> None:
    """Its first heartbeat since renews them."""
    run_sync(lost.conn, beat_worker(lost.id, {}))
    held = [Held(*row) for row in lost.conn.execute("SELECT id, lock_token FROM holdfast.job").fetchall()]
    assert not run_sync(lost.conn, renew_leases(lost.id, dict.fromkeys(held, Lease())))
    before = number(lost.conn, "SELECT locked_until FROM holdfast.job")
    assert run_sync(lost.conn, shorten_leases()) == 0
    assert number(lost.conn, "SELECT locked_until FROM holdfast.job") == before
    run_sync(lost.conn, join_subscription(1, lost.id, lease_ms=60_000))
    assert number(lost.conn, "SELECT max(until) <= now() + interval '1 minute' FROM holdfast.member"), "of its own"


def test_a_job_that_is_locked_is_found_by_a_later_pass(lost: Worker, connect: Connect) -> None:
    holder = connect()
    with holder.transaction():
        holder.execute("SELECT FROM holdfast.job FOR UPDATE")
        assert run_sync(lost.conn, shorten_leases()) == 0
        assert run_sync(lost.conn, reap_jobs({}, worker=lost.id)).set_back
    assert run_sync(lost.conn, shorten_leases()) == 1


@pytest.mark.parametrize(
    ("table", "columns", "values", "delete"),
    [
        ("sleeper", "until, worker_id, queue, kinds", "now() + interval '10 seconds', 1, 'q', '{}'", delete_sleepers),
        ("sweep", "until, reach", "now() + interval '10 seconds', interval '1 minute'", delete_sweeps),
    ],
)
def test_records_of_a_clock_that_was_ahead_are_deleted(
    connect: Connect, table: str, columns: str, values: str, delete: Callable[[], Any]
) -> None:
    """A worker that died with one would be woken in place of others; a sweep would keep all from looking back."""
    conn = connect()
    conn.execute(f"INSERT INTO holdfast.{table} ({columns}) VALUES ({values})".encode())
    assert run_sync(conn, delete()) == 0
    set_back(conn, EXCURSION)
    assert run_sync(conn, delete()) == 1


def test_a_reaper_records_its_passes_again(connect: Connect) -> None:
    worker = Worker(connect())
    run_sync(worker.conn, reap_jobs({}, worker=worker.id))
    set_back(worker.conn, EXCURSION)
    run_sync(worker.conn, reap_jobs({}, worker=worker.id, record_every=60.0))
    assert number(worker.conn, "SELECT reaped_at <= now() FROM holdfast.worker")


def test_a_period_that_a_dead_process_exports_is_taken_over(connect: Connect) -> None:
    conn = connect()
    day = date(2026, 1, 1)
    period = Period("job_history", day, day + timedelta(days=1), 1, "holdfast.job_history", "finished_at", None)
    assert run_sync(conn, start_export(period)) is not None
    assert run_sync(conn, start_export(period)) is None
    set_back(conn, EXCURSION)
    assert run_sync(conn, start_export(period)) is not None
