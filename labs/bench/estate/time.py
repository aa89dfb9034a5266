"""Days that are past, and the ids that were drawn in them: ten thousand a second, so that a time tells an id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

KEPT_DAYS = {
    "job_history": 14,
    "job_failed": 90,
    "attempt": 90,
    "tally": 90,
    "run": 30,
    "event": 7,
}
"""As the retention is by default."""


def begin_time(conn: psycopg.Connection[Any]) -> None:
    """Each home has a remainder of its own: the same moment gives it another id."""
    conn.execute("CREATE SCHEMA estate")
    conn.execute(
        """
        CREATE FUNCTION estate.id_at(at timestamptz, home integer) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
            SELECT 4 * floor(10000 * extract(epoch FROM at - timestamptz '2025-01-01Z'))::bigint + home $$
        """
    )
    conn.execute(
        """
        INSERT INTO holdfast.landmark (at, last_id)
        SELECT m, estate.id_at(m, 3)
        FROM generate_series(date_trunc('minute', now()) - interval '91 days', now(), '1 minute') AS m
        """
    )
    conn.execute("SELECT setval('holdfast.job_id_seq', estate.id_at(now() + interval '1 minute', 0))")


def make_days(conn: psycopg.Connection[Any], family: str, days: int) -> None:
    """Make the partitions of the days that are past."""
    rows = conn.execute(
        """
        SELECT to_char(day, 'YYYYMMDD'), day::date::text, (day + interval '1 day')::date::text
        FROM generate_series(date_trunc('day', now() AT TIME ZONE 'UTC') - %s * interval '1 day',
            date_trunc('day', now() AT TIME ZONE 'UTC'), '1 day') AS day
        WHERE to_regclass('holdfast.' || %s || to_char(day, '_YYYYMMDD')) IS NULL
        """,
        (days, family),
    ).fetchall()
    for name, since, until in rows:
        conn.execute(
            f"CREATE TABLE holdfast.{family}_{name}"
            f" (LIKE holdfast.{family} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)".encode()
        )
        conn.execute(
            f"ALTER TABLE holdfast.{family}_days ATTACH PARTITION holdfast.{family}_{name}"
            f" FOR VALUES FROM ('{since} 00:00Z') TO ('{until} 00:00Z')".encode()
        )
