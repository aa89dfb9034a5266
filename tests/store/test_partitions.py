from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._model.errors import InvalidJob
from holdfast._store.worker import ensure_partitions
from tests.kit.workers import number

if TYPE_CHECKING:
    from psycopg import Connection

    from tests.kit.workers import Connect

FAMILIES = ("job_history", "job_failed", "attempt", "run", "tally", "event", "delivery")
AHEAD = 3


def days(conn: Connection[Any], family: str) -> list[int]:
    """Return which days have a partition, counted from today."""
    rows = conn.execute(
        "SELECT substring(c.relname from '\\d{8}$')::date - (now() AT TIME ZONE 'UTC')::date FROM pg_inherits i "
        "JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = %s::regclass ORDER BY 1",
        [f"holdfast.{family}_days"],
    )
    return [row[0] for row in rows]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_day_from_yesterday_on(connect: Connect, family: str) -> None:
    conn = connect()
    assert days(conn, family) == list(range(-1, AHEAD + 1))


def test_what_is_there_is_not_made_again(connect: Connect) -> None:
    conn = connect()
    assert run_sync(conn, ensure_partitions(AHEAD)) == 0
    assert run_sync(conn, ensure_partitions(AHEAD + 2)) == 2 * len(FAMILIES)
    conn.execute(
        "DROP TABLE holdfast.job_failed_"
        + number(conn, "SELECT to_char(now() AT TIME ZONE 'UTC' + '3 days', 'YYYYMMDD')")
    )
    assert run_sync(conn, ensure_partitions(AHEAD)) == 1


def test_partitions_have_the_indexes_of_their_table(connect: Connect) -> None:
    conn = connect()
    run_sync(conn, ensure_partitions(AHEAD + 1))
    lacking = conn.execute(
        "SELECT p.inhrelid::regclass::text, i.indexrelid::regclass::text FROM pg_inherits p "
        "JOIN pg_partitioned_table t ON t.partrelid = p.inhparent JOIN pg_index i ON i.indrelid = p.inhparent "
        "WHERE NOT EXISTS (SELECT FROM pg_inherits a JOIN pg_index own ON own.indexrelid = a.inhrelid "
        "    WHERE a.inhparent = i.indexrelid AND own.indrelid = p.inhrelid AND own.indisvalid)"
    ).fetchall()
    assert lacking == []
    own = conn.execute(
        "SELECT i.indexrelid::regclass::text FROM pg_inherits p "
        "JOIN pg_partitioned_table t ON t.partrelid = p.inhparent JOIN pg_index i ON i.indrelid = p.inhrelid "
        "WHERE p.inhparent::regclass::text LIKE 'holdfast.%%' "
        "    AND NOT EXISTS (SELECT FROM pg_inherits a WHERE a.inhrelid = i.indexrelid) ORDER BY 1",
        [],
    ).fetchall()
    # Unique only together with the time of the day's cut, which the table above does not have in its key.
    kept = ["job_failed_id", "job_failed_late_id", "job_history_id", "job_history_late_id"]
    assert [name for (name,) in own] == [f"holdfast.{name}" for name in kept]


def test_many_at_once(connect: Connect) -> None:
    conns = [connect() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda conn: run_sync(conn, ensure_partitions(AHEAD + 5)), conns))
    assert sum(made) == 5 * len(FAMILIES)


@pytest.mark.parametrize("timezone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_days_are_those_of_utc_whatever_the_session_thinks(connect: Connect, timezone: str) -> None:
    conn = connect()
    conn.execute(f"SET timezone = '{timezone}'".encode())
    run_sync(conn, ensure_partitions(AHEAD + 1))
    bounds = number(
        conn,
        "SELECT count(DISTINCT (regexp_match(pg_get_expr(c.relpartbound, c.oid), '\\((''.+'')\\) TO'))[1]::text) "
        "FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'holdfast.tally_days'::regclass",
    )
    assert bounds == AHEAD + 3
    assert days(conn, "tally") == list(range(-1, AHEAD + 2))


@pytest.mark.parametrize("ahead", [0, -1, 367])
def test_how_far_ahead_is_bounded(connect: Connect, ahead: int) -> None:
    with pytest.raises(InvalidJob, match="1 to 366 days ahead"):
        run_sync(connect(), ensure_partitions(ahead))
