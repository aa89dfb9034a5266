"""PROTOCOL, section 8: partitions come and go while everybody works, and nothing is refused for lack of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.errors import HoldfastError
from holdfast._store.search import cancel_job
from holdfast._store.worker import ensure_partitions
from tests.kit.mutation import open_trap
from tests.kit.workers import COMPLETED, FAILED, RETRIED, Worker, enqueue, job, number

if TYPE_CHECKING:
    from holdfast._model.outcome import Outcome
    from tests.kit.workers import Connect

FAMILIES = ("job_history", "job_failed", "attempt", "run", "tally", "event", "delivery")


def partitions(conn: psycopg.Connection[Any]) -> list[str]:
    rows = conn.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits JOIN pg_class p ON p.oid = inhparent "
        "WHERE p.relnamespace = 'holdfast'::regnamespace AND p.relname LIKE '%_days' ORDER BY 1"
    )
    return [row[0] for row in rows]


def drop_all(conn: psycopg.Connection[Any]) -> None:
    for name in partitions(conn):
        conn.execute(f"DROP TABLE {name}".encode())
    assert partitions(conn) == []


def test_partitions_are_added_beside_long_readers_and_writers(connect: Connect) -> None:
    conn, reader, writer = connect(), connect(), connect()
    reader.execute("BEGIN")
    writer.execute("BEGIN")
    for family in FAMILIES:
        reader.execute(f"SELECT count(*) FROM holdfast.{family}".encode())
    worker = Worker(writer)
    enqueue(conn, job())
    worker.end(worker.claim(), FAILED)
    conn.execute("SET lock_timeout = '2s'")
    assert run_sync(conn, ensure_partitions(9)) == 6 * len(FAMILIES)
    writer.execute("COMMIT")
    # The trap: the usual way to make one.
    conn.execute("SET lock_timeout = '200ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        conn.execute(
            "CREATE TABLE holdfast.later PARTITION OF holdfast.job_history_days "
            "FOR VALUES FROM ('2999-01-01') TO ('2999-01-02')"
        )


@pytest.mark.parametrize("outcome", [COMPLETED, FAILED, RETRIED], ids=lambda outcome: type(outcome).__name__)
@pytest.mark.parametrize("careful", [False, True])
def test_a_finish_without_a_partition_is_late_and_not_refused(
    connect: Connect, outcome: Outcome, careful: bool
) -> None:
    conn = connect()
    worker = Worker(conn)
    (first,) = enqueue(conn, job())
    claimed = worker.claim()
    drop_all(conn)
    assert worker.end(claimed, outcome, careful=careful)[first] in {"completed", "failed", "pending"}
    assert partitions(conn) == []
    assert number(conn, "SELECT count(*) FROM holdfast.tally WHERE late") > 0

    # The trap: nobody looks, and a maintenance that was late stops every finish.
    enqueue(conn, job())
    claimed = worker.claim(1)
    open_trap(conn, "need_partitions", ("PERFORM set_config('holdfast.late', 'on', true);", "NULL;"))
    with pytest.raises((psycopg.Error, HoldfastError), match="no partition of relation"):
        worker.end(claimed, outcome, careful=careful)


def test_after_two_weeks_without_maintenance_no_session_waits(connect: Connect) -> None:
    """Two producers and a finisher at once, each in a transaction that stays open."""
    conn, keeper, finisher = connect(), connect(), connect()
    producers = [connect(), connect()]
    worker = Worker(finisher)
    ended, called_off = enqueue(conn, job(), job())
    claims = worker.claim(1)
    drop_all(conn)
    for user in (*producers, finisher):
        user.execute("SET lock_timeout = '2s'")
        user.execute("BEGIN")
    for n, user in enumerate(producers):
        user.execute("SELECT holdfast.publish('a', %s::json)", [str(n)])
        user.execute("SELECT holdfast.enqueue('a', unique_key => %s, unique_window => '1 day')", [str(n)])
        user.execute("SELECT holdfast.receive('a', %s)", [str(n)])
    assert run_sync(finisher, cancel_job(called_off)) == "cancelled"
    assert worker.end(claims)[ended] == "completed"
    # Maintenance makes what is missing beside all of them.
    keeper.execute("SET lock_timeout = '2s'")
    assert run_sync(keeper, ensure_partitions()) == len(FAMILIES) * 5
    for user in (*producers, finisher):
        user.execute("COMMIT")
    assert number(conn, "SELECT count(*) FROM holdfast.event WHERE late") == len(producers)
    # What came late is moved to its day by the next pass; nobody misses it meanwhile.
    history = "SELECT count(*) FROM holdfast.job_history"
    assert number(conn, history) == 2
    assert run_sync(keeper, ensure_partitions()) == 0
    for family in FAMILIES:
        assert number(conn, f"SELECT count(*) FROM holdfast.{family}_late") == 0
    assert number(conn, history) == 2
    assert number(conn, "SELECT count(*) FROM holdfast.event") == len(producers)
    conn.execute("SELECT holdfast.publish('a', '2')")
    assert number(conn, "SELECT count(*) FROM holdfast.event_days") == len(producers) + 1


def test_what_came_late_long_ago_is_moved_to_a_day_that_is_made_for_it(connect: Connect) -> None:
    conn, other = connect(), connect()
    conn.execute("SELECT set_config('holdfast.late', 'on', false)")
    conn.execute(
        "INSERT INTO holdfast.attempt (job_id, ended_at, outcome, attempt) "
        "SELECT n, now() - interval '40 days', 'retry', 1 FROM generate_series(1, 10010) AS n"
    )
    before = len(partitions(conn))
    with other.transaction():
        other.execute("SELECT count(*) FROM holdfast.attempt")
        assert run_sync(conn, ensure_partitions()) == 1
    assert len(partitions(conn)) == before + 1
    assert number(conn, "SELECT count(*) FROM holdfast.attempt_late") == 10
    run_sync(conn, ensure_partitions())
    assert number(conn, "SELECT count(*) FROM holdfast.attempt_late") == 0
    assert number(conn, "SELECT count(*) FROM holdfast.attempt_days") == 10010


def test_a_partition_can_be_detached_beside_readers(connect: Connect) -> None:
    conn = connect()
    defaults = "SELECT count(*) FROM pg_partitioned_table WHERE partdefid <> 0"
    assert number(conn, defaults) == 0
    one, two = [name for name in partitions(conn) if name.startswith("holdfast.attempt_")][:2]
    parent = "holdfast.attempt_days"
    conn.execute(f"ALTER TABLE {parent} DETACH PARTITION {one} CONCURRENTLY".encode())
    conn.execute(f"CREATE TABLE holdfast.rest PARTITION OF {parent} DEFAULT".encode())
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="default partition"):
        conn.execute(f"ALTER TABLE {parent} DETACH PARTITION {two} CONCURRENTLY".encode())
