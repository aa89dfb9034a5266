"""Clocks that are set by hand, and the server's, corrected: all times of the database are moved the other way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import sql

if TYPE_CHECKING:
    from datetime import timedelta

    import psycopg


class Clock:
    """To be given to what reads `time.monotonic` or `time.time`."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def set_back(conn: psycopg.Connection[Any], by: timedelta) -> None:
    """Let the clock have been ahead by so much until now. Days of ended rows stay as they are."""
    columns = conn.execute(
        "SELECT c.relname, array_agg(a.attname::text) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
        "WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r' AND NOT c.relispartition "
        "AND a.atttypid = 'timestamptz'::regtype GROUP BY c.relname"
    ).fetchall()
    for table, names in columns:
        moved = [sql.SQL("{0} = {0} + {1}").format(sql.Identifier(name), by) for name in names]
        conn.execute(sql.SQL("UPDATE {} SET {}").format(sql.Identifier("holdfast", table), sql.SQL(", ").join(moved)))
