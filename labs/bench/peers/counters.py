"""The statements and writes of a database, as PostgreSQL counts them once all clients have disconnected."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

LONGEST_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Counters:
    wal: float
    tuples: float
    commits: float
    statements: float

    def __sub__(self, other: Counters) -> Counters:
        return Counters(
            self.wal - other.wal,
            self.tuples - other.tuples,
            self.commits - other.commits,
            self.statements - other.statements,
        )

    def per(self, jobs: int) -> Counters:
        return Counters(self.wal / jobs, self.tuples / jobs, self.commits / jobs, self.statements / jobs)


def read(conn: psycopg.Connection[Any], dbname: str) -> Counters:
    """Return the counters of a database, from a connection to another one. Sessions count when they have ended."""
    until = time.monotonic() + LONGEST_SECONDS
    while _first(
        conn,
        "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'",
        dbname,
    ):
        assert time.monotonic() < until, f"a client is still connected to {dbname}"
        time.sleep(0.02)
    row = conn.execute(
        "SELECT tup_inserted + tup_updated + tup_deleted, xact_commit FROM pg_stat_database WHERE datname = %s",
        [dbname],
    ).fetchone()
    assert row is not None
    statements = _first(
        conn,
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements"
        " WHERE dbid = (SELECT oid FROM pg_database WHERE datname = %s)",
        dbname,
    )
    wal = _first(conn, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    return Counters(wal, float(row[0]), float(row[1]), statements)


def _first(conn: psycopg.Connection[Any], query: str, *values: str) -> float:
    row = conn.execute(query.encode(), list(values)).fetchone()
    assert row is not None
    return float(row[0])
