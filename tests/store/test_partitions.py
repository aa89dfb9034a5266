from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.drivers import run_sync
from holdfast.errors import InvalidJob
from holdfast.store.worker import ensure_partitions
from tests.traps.workers import number

if TYPE_CHECKING:
    from psycopg import Connection

    from tests.traps.workers import Connect

FAMILIES = {
    "job_history": 0,
    "job_failed": 0,
    "attempt": 0,
    "run": 0,
    "tally": 0,
    "unique_window": 31,
    "event": 0,
    "inbox": 0,
    "delivery": 0,
}
AHEAD = 14


def days(conn: Connection[Any], family: str) -> list[int]:
    """Return which days have a partition, counted from today."""
    rows = conn.execute(
        "SELECT substring(c.relname from '\\d{8}$')::date - (now() AT TIME ZONE 'UTC')::date FROM pg_inherits i "
        "JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = %s::regclass ORDER BY 1",
        [f"holdfast.{family}"],
    )
    return [row[0] for row in rows]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_day_from_yesterday_on(connect: Connect, family: str) -> None:
    conn = connect()
    assert days(conn, family) == list(range(-1, AHEAD + FAMILIES[family] + 1))


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
    lacking = number(
        conn,
        "SELECT count(*) FROM pg_inherits p JOIN pg_partitioned_table t ON t.partrelid = p.inhparent "
        "WHERE (SELECT count(*) FROM pg_index WHERE indrelid = p.inhrelid AND indisvalid) "
        "    <> (SELECT count(*) FROM pg_index WHERE indrelid = p.inhparent)",
    )
    assert lacking == 0


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
        "FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'holdfast.tally'::regclass",
    )
    assert bounds == AHEAD + 3
    assert days(conn, "tally") == list(range(-1, AHEAD + 2))


@pytest.mark.parametrize("ahead", [0, -1, 367])
def test_how_far_ahead_is_bounded(connect: Connect, ahead: int) -> None:
    with pytest.raises(InvalidJob, match="1 to 366 days ahead"):
        run_sync(connect(), ensure_partitions(ahead))
