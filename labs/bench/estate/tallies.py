"""Tallies, folded as maintenance folds them, and the last minutes as workers write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from labs.bench.estate.jobs import KINDS, QUEUES

if TYPE_CHECKING:
    import psycopg

BUCKETS = 8
# Thirty workers write what has ended, several times a second.
UNFOLDED_A_SECOND = 300
UNFOLDED_SECONDS = 180


def fill_tallies(conn: psycopg.Connection[Any]) -> None:
    """Fill days, then hours since yesterday, then minutes: every kind in each, in several buckets and outcomes."""
    conn.execute(
        f"""
        WITH times AS (SELECT date_trunc('day', now(), 'UTC') AS today, date_trunc('hour', now(), 'UTC') AS hour),
        minutes (m) AS (
            SELECT generate_series(today - interval '89 days', today - interval '2 days', '1 day') FROM times
            UNION ALL
            SELECT generate_series(today - interval '1 day', hour - interval '3 hours', '1 hour') FROM times
            UNION ALL
            SELECT generate_series(hour - interval '2 hours', now() - interval '3 minutes', '1 minute') FROM times),
        endings (outcome, bucket) AS (
            SELECT 'completed', bucket FROM generate_series(2, {1 + BUCKETS}) AS bucket
            UNION ALL VALUES ('failed', 9), ('failed', 12), ('retry', NULL))
        INSERT INTO holdfast.tally (minute, latency, latency_max, jobs, bucket, outcome, queue, kind)
        SELECT m, interval '1 second', interval '1 second', 40, bucket, outcome::holdfast.outcome,
            'queue' || k % {QUEUES}, 'estate.kind' || k
        FROM minutes, endings, generate_series(0, {KINDS - 1}) AS k
        """.encode()
    )
    conn.execute(
        f"""
        INSERT INTO holdfast.tally (minute, latency, latency_max, jobs, bucket, outcome, queue, kind)
        SELECT date_trunc('minute', now() - n / {UNFOLDED_A_SECOND} * interval '1 second'), interval '1 second',
            interval '1 second', 3, 2 + n % {BUCKETS}, 'completed', 'queue' || n % {QUEUES},
            'estate.kind' || n % {KINDS}
        FROM generate_series(0, {UNFOLDED_A_SECOND * UNFOLDED_SECONDS - 1}) AS n
        """.encode()
    )
