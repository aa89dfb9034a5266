from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._store.dead_letter import group_dead_letters
from holdfast._store.finish import Ending, complete_plain, finish_jobs
from holdfast._store.inspect import list_attempts, read_job
from holdfast._store.search import AFTER_ALL, Search, Span, follow_ids
from holdfast._store.tally import TallySpan, Times, fold_tallies, quantiles, read_tallies, sum_tallies
from tests.kit.workers import COMPLETED, FAILED, RELEASED, RETRIED, Worker, enqueue, expire_leases, job, number

if TYPE_CHECKING:
    import psycopg

    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect


def bucket(conn: psycopg.Connection[Any], ms: float | None) -> int:
    return int(number(conn, "SELECT holdfast.time_bucket(%s)", ms))


def ended(worker: Worker, jobs: list[ClaimedJob], seconds: float, outcome: Any = COMPLETED) -> None:
    endings = [Ending(one, outcome, seconds=seconds) for one in jobs]
    run_sync(worker.conn, finish_jobs(worker.id, endings))


def due(conn: psycopg.Connection[Any], seconds: float) -> None:
    """Let all jobs have been due so long when they were claimed, or be due since then."""
    conn.execute(
        "UPDATE holdfast.job SET available_at = coalesce(claimed_at, now()) - %s * interval '1 second'", [seconds]
    )


def times(conn: psycopg.Connection[Any], **which: Any) -> Times:
    found = Times()
    for line in run_sync(conn, read_tallies(60, whole=True, **which)):
        found.add(line.times)
    return found


def test_a_bucket_gives_its_values_within_five_percent(connect: Connect) -> None:
    conn = connect()
    drawn = random.Random(7)
    for _ in range(200):
        seconds = 10 ** drawn.uniform(-4, 6.4)
        (found,) = quantiles({bucket(conn, 1000 * seconds): 1}, 0.5)
        assert found == pytest.approx(seconds, rel=0.05)
    assert [bucket(conn, ms) for ms in (0, 0.1, 1e12, None)] == [0, 0, 254, 255]


def test_quantiles_of_many_values_are_within_five_percent(connect: Connect) -> None:
    conn = connect()
    values = sorted(random.Random(3).lognormvariate(0, 2) for _ in range(500))
    buckets: dict[int, int] = {}
    for value in values:
        place = bucket(conn, 1000 * value)
        buckets[place] = buckets.get(place, 0) + 1
    found = quantiles(buckets, 0.5, 0.95, 0.99)
    assert found == [pytest.approx(values[int(part * 500) - 1], rel=0.05) for part in (0.5, 0.95, 0.99)]


@pytest.mark.parametrize("way", ["one token", "several", "plain", "settled"])
def test_each_way_to_end_counts_how_long_a_job_waited_and_ran(connect: Connect, way: str) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, *[job() for _ in range(6)])
    claimed = worker.claim(3) + worker.claim(3)
    if way == "one token":
        claimed = [one for one in claimed if one.token == claimed[0].token]
    due(worker.conn, 40)
    if way == "plain":
        endings = [Ending(one, COMPLETED, seconds=0.5) for one in claimed]
        assert run_sync(worker.conn, complete_plain(worker.id, endings)) is None
    else:
        ended(worker, claimed, 0.5, FAILED if way == "settled" else COMPLETED)
    found = times(worker.conn)
    assert sum(found.waiting.values()) == sum(found.running.values()) == len(claimed)
    assert quantiles(found.waiting, 0.5) == [pytest.approx(40, rel=0.05)]
    assert quantiles(found.running, 0.5) == [pytest.approx(0.5, rel=0.05)]
    assert number(worker.conn, "SELECT sum(jobs) FROM holdfast.tally") == len(claimed)
    table = "job_failed" if way == "settled" else "job_history"
    rows = worker.conn.execute(f"SELECT DISTINCT waited_ms, ran_ms, first_due_at FROM holdfast.{table}").fetchall()
    assert rows == [(40_000, 500, None)]


@pytest.mark.parametrize("last", [COMPLETED, FAILED])
def test_a_job_with_five_attempts_took_as_long_as_all_of_them(connect: Connect, last: Any) -> None:
    worker = Worker(connect())
    (made,) = enqueue(worker.conn, job(max_attempts=9))
    for outcome in (RETRIED, RETRIED, RELEASED, RETRIED, last):
        (claimed,) = worker.claim()
        due(worker.conn, 2)
        ended(worker, [claimed], 0.25, outcome)
        worker.conn.execute("UPDATE holdfast.job SET first_due_at = first_due_at - interval '1 minute'")
    row = run_sync(worker.conn, read_job(made))
    assert row is not None
    assert (row["waited_ms"], row["ran_ms"]) == (10_000, 1_250)
    spent = number(
        worker.conn,
        "SELECT extract(epoch FROM h.finished_at - h.first_due_at) FROM (TABLE holdfast.job_history UNION ALL"
        " TABLE holdfast.job_failed) AS h",
    )
    assert 242 <= spent < 300
    lines = run_sync(worker.conn, list_attempts(made))
    assert [(line.outcome, line.waited, line.seconds) for line in lines][-1][1:] == (2, 0.25)
    assert len(lines) == 5
    assert all(line.waited == 2 and line.due_at is not None for line in lines)
    assert sum(times(worker.conn).running.values()) == 5


def test_a_first_attempt_that_completed_has_its_times_from_the_job(connect: Connect) -> None:
    worker = Worker(connect())
    (made,) = enqueue(worker.conn, job())
    claimed = worker.claim()
    due(worker.conn, 3)
    ended(worker, claimed, 0.125)
    (line,) = run_sync(worker.conn, list_attempts(made))
    assert (line.waited, line.seconds) == (3, 0.125)
    assert line.due_at is not None
    assert line.started_at == line.ended_at - timedelta(seconds=0.125)


def test_an_attempt_that_was_lost_has_waited_and_its_run_is_not_known(connect: Connect) -> None:
    worker = Worker(connect())
    (made,) = enqueue(worker.conn, job())
    worker.claim()
    due(worker.conn, 3)
    expire_leases(worker.conn)
    worker.reap()
    row = run_sync(worker.conn, read_job(made))
    assert row is not None
    assert (row["claimed_at"], row["waited_ms"], row["ran_ms"]) == (None, 3_000, None)
    found = times(worker.conn)
    assert (sum(found.waiting.values()), sum(found.running.values())) == (1, 0)


def test_a_job_that_never_started_has_no_times(connect: Connect) -> None:
    conn = connect()
    (made,) = enqueue(conn, job())
    conn.execute("SELECT holdfast.cancel_job(%s)", [made])
    row = run_sync(conn, read_job(made))
    assert row is not None
    assert (row["status"], row["waited_ms"], row["ran_ms"]) == ("cancelled", None, None)
    assert times(conn) == Times()


def test_a_fold_changes_no_count_and_no_time(connect: Connect) -> None:
    worker = Worker(connect(), "a", "b")
    enqueue(worker.conn, *[job("a") for _ in range(7)], *[job("b") for _ in range(3)])
    claimed = worker.claim()
    for place, one in enumerate(claimed):
        ended(worker, [one], 10.0 ** (place - 5), FAILED if place == 2 else COMPLETED)
    before = [times(worker.conn, kind=kind) for kind in "ab"]
    minute = worker.conn.execute("SELECT min(minute), max(minute) FROM holdfast.tally").fetchone()
    assert minute is not None
    span = TallySpan(minute[0], minute[1] + timedelta(minutes=1))
    assert run_sync(worker.conn, fold_tallies(span)) == 10 - 3
    assert [times(worker.conn, kind=kind) for kind in "ab"] == before
    assert number(worker.conn, "SELECT sum(jobs) FROM holdfast.tally") == 10


def test_tallies_are_read_by_step(connect: Connect) -> None:
    conn = connect()
    with conn.transaction():  # so that it is one minute
        conn.execute(
            "INSERT INTO holdfast.tally (minute, jobs, times, outcome, queue, kind)"
            " SELECT date_trunc('minute', now()) - m * interval '1 minute', 2, ARRAY[1024 + 3, 1024 + 256 + 9],"
            " 'completed', 'default', 'mail' FROM generate_series(0, 70) AS m, generate_series(1, 2)"
        )
        lines = run_sync(conn, read_tallies(60))
        by_kind = run_sync(conn, read_tallies(60, kinds=True, whole=True))
        coarse = run_sync(conn, read_tallies(4, seconds=900))
        other = run_sync(conn, read_tallies(60, queue="mail"))
    counted = [line for line in lines if line.outcome]
    assert [(line.queue, line.kind, line.outcome, line.jobs) for line in counted] == [
        ("default", None, "completed", 4)
    ] * 60
    assert [sorted(line.times) for line in lines if not line.outcome] == [[512 * 4 + 3, 512 * 4 + 256 + 9]] * 60
    assert [(line.at, line.kind, line.jobs) for line in by_kind if line.outcome] == [(None, "mail", 240)]
    assert 45 * 4 <= sum(line.jobs for line in coarse) <= 60 * 4
    assert len([line for line in coarse if line.outcome]) == 4
    assert other == []


def test_what_is_kept_is_summed_within_its_retention(connect: Connect) -> None:
    conn = connect()
    conn.execute("SELECT holdfast.ensure_partitions()")
    for ago in (3, 20):
        conn.execute(
            f"""
            CREATE TABLE holdfast.tally_{ago} PARTITION OF holdfast.tally_days
            FOR VALUES FROM (date_trunc('day', now() - interval '{ago} days', 'UTC'))
            TO (date_trunc('day', now() - interval '{ago - 1} days', 'UTC'))
            """.encode()
        )
    conn.execute(
        """
        INSERT INTO holdfast.tally (minute, jobs, outcome, queue, kind)
        SELECT date_trunc('day', now() - d * interval '1 day', 'UTC'), 10, o::holdfast.outcome, 'q', 'k'
        FROM unnest(ARRAY[0, 3, 20]) AS d, unnest(ARRAY['completed', 'failed', 'retry']) AS o
        """
    )
    assert run_sync(conn, sum_tallies()) == {"completed": 20, "failed": 30}


def test_dead_letters_name_the_versions_that_made_them(connect: Connect) -> None:
    conn = connect()
    for version, jobs in (("4.1", 1), ("4.2", 3), (None, 1)):
        worker = Worker(conn)
        conn.execute("UPDATE holdfast.worker SET app_version = %s WHERE id = %s", [version, worker.id])
        enqueue(conn, *[job() for _ in range(jobs)])
        ended(worker, worker.claim(), 0.1, FAILED)
    run_sync(conn, follow_ids())
    (group,) = run_sync(conn, group_dead_letters(Search(), Span(0, AFTER_ALL), scan=100, limit=10)).groups
    assert group.jobs == 5
    assert [(one.version, one.jobs) for one in group.versions] == [("4.2", 3), ("4.1", 1)]
    assert group.first_at <= group.versions[1].first_at < group.versions[0].first_at <= group.versions[0].last_at
