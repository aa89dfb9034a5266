"""Counting what a database has committed and written, by PostgreSQL's own counters."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from labs.bench.wal import position

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_SECONDS = 30.0


class Written:
    wal = tuples = commits = 0.0

    def per(self, jobs: int) -> Written:
        shared = Written()
        shared.wal, shared.tuples, shared.commits = self.wal / jobs, self.tuples / jobs, self.commits / jobs
        return shared

    def __repr__(self) -> str:
        return f"{self.wal:.0f} B of WAL, {self.tuples:.3f} tuples, {self.commits:.3f} commits"


@contextmanager
def written(conn: psycopg.Connection[Any]) -> Iterator[Written]:
    """Count what happens in the database of this connection, other sessions included once they have ended."""
    found = Written()
    others = _others(conn)
    for look in (_counters, position):
        look(conn)  # a statement that is prepared at its first use commits once more
    tuples, commits = _counters(conn)
    wal = position(conn)
    yield found
    until = time.monotonic() + LONGEST_SECONDS
    while _others(conn) > others:  # a session that is left says what it did a moment later
        assert time.monotonic() < until
        time.sleep(0.005)
    found.wal = position(conn) - wal
    after, ended = _counters(conn)
    # Our own: a look at the counters, two at the position, and the flush before the last look.
    found.tuples, found.commits = after - tuples, ended - commits - 4


def _counters(conn: psycopg.Connection[Any]) -> tuple[int, int]:
    conn.execute("SELECT pg_stat_force_next_flush()")
    row = conn.execute(
        "SELECT tup_inserted + tup_updated + tup_deleted, xact_commit FROM pg_stat_database"
        " WHERE datname = current_database()"
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _others(conn: psycopg.Connection[Any]) -> int:
    """How many more sessions this database has, asked from another one."""
    with psycopg.connect(conn.info.dsn, dbname="postgres", autocommit=True) as elsewhere:
        row = elsewhere.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = %s AND pid <> %s AND backend_type = 'client backend'",
            [conn.info.dbname, conn.info.backend_pid],
        ).fetchone()
    assert row is not None
    return int(row[0])
