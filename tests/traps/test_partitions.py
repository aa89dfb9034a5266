"""PROTOCOL, section 8: partitions come and go while everybody works, and nothing is refused for lack of one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast.drivers import run_sync
from holdfast.errors import HoldfastError
from holdfast.new_job import Unique
from holdfast.store.cancel import cancel_job
from holdfast.store.worker import ensure_partitions
from tests.traps.mutation import open_trap
from tests.traps.workers import COMPLETED, FAILED, RETRIED, Worker, enqueue, job, number

if TYPE_CHECKING:
    from holdfast.outcome import Outcome
    from tests.traps.workers import Connect

FAMILIES = ("job_history", "job_failed", "attempt", "run", "tally", "unique_window", "event", "inbox", "delivery")


def partitions(conn: psycopg.Connection[Any]) -> list[str]:
    rows = conn.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits JOIN pg_class p ON p.oid = inhparent AND p.relkind = 'p' "
        "WHERE p.relnamespace = 'holdfast'::regnamespace ORDER BY 1"
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
    assert run_sync(conn, ensure_partitions(20)) == 6 * len(FAMILIES)
    writer.execute("COMMIT")
    # The trap: the usual way to make one.
    conn.execute("SET lock_timeout = '200ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        conn.execute(
            "CREATE TABLE holdfast.later PARTITION OF holdfast.job_history "
            "FOR VALUES FROM ('2999-01-01') TO ('2999-01-02')"
        )


@pytest.mark.parametrize("outcome", [COMPLETED, FAILED, RETRIED], ids=lambda outcome: type(outcome).__name__)
@pytest.mark.parametrize("careful", [False, True])
def test_a_finish_makes_what_is_missing(connect: Connect, outcome: Outcome, careful: bool) -> None:
    conn = connect()
    worker = Worker(conn)
    (first,) = enqueue(conn, job())
    claimed = worker.claim()
    drop_all(conn)
    assert worker.end(claimed, outcome, careful=careful)[first] in {"completed", "failed", "pending"}
    assert len(partitions(conn)) == len(FAMILIES) * 16 + 31

    # The trap: nobody looks, and a maintenance that was late stops every finish.
    enqueue(conn, job())
    claimed = worker.claim(1)
    open_trap(conn, "need_partitions", ("PERFORM holdfast.ensure_partitions();", "NULL;"))
    drop_all(conn)
    with pytest.raises((psycopg.Error, HoldfastError), match="no partition of relation"):
        worker.end(claimed, outcome, careful=careful)


def test_cancelling_and_unique_windows_make_what_is_missing(connect: Connect) -> None:
    conn = connect()
    (called_off,) = enqueue(conn, job())
    drop_all(conn)
    assert run_sync(conn, cancel_job(called_off)) == "cancelled"
    drop_all(conn)
    for days in (1, 31):
        enqueue(conn, job(unique=Unique("a", window=timedelta(days=days))))
    assert number(conn, "SELECT count(*) FROM holdfast.unique_window") == 2


def test_the_longest_window_has_its_partition_until_the_last_day_before_more_are_made(connect: Connect) -> None:
    """Partitions are made anew when tomorrow's history is missing; until then the windows reach far enough."""
    conn = connect()
    furthest = "SELECT max(substring(name from '\\d+$')::date) FROM unnest(%s::text[]) AS name WHERE name ~ %s"
    history = number(conn, furthest, partitions(conn), r"^holdfast\.job_history_")
    windows = number(conn, furthest, partitions(conn), r"^holdfast\.unique_window_")
    assert windows >= history - timedelta(days=1) + timedelta(days=31)


def test_a_partition_can_be_detached_beside_readers(connect: Connect) -> None:
    conn = connect()
    defaults = "SELECT count(*) FROM pg_partitioned_table WHERE partdefid <> 0"
    assert number(conn, defaults) == 0
    one, two = [name for name in partitions(conn) if name.startswith("holdfast.attempt_")][:2]
    parent = "holdfast.attempt"
    conn.execute(f"ALTER TABLE {parent} DETACH PARTITION {one} CONCURRENTLY".encode())
    conn.execute(f"CREATE TABLE holdfast.rest PARTITION OF {parent} DEFAULT".encode())
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="default partition"):
        conn.execute(f"ALTER TABLE {parent} DETACH PARTITION {two} CONCURRENTLY".encode())
