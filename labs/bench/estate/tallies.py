"""Tallies, folded as maintenance folds them, and the last minutes as workers write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from labs.bench.estate.jobs import KINDS, QUEUES

if TYPE_CHECKING:
    import psycopg

BUCKETS = 24
# Thirty workers write what has ended, several times a second.
UNFOLDED_A_SECOND = 300
UNFOLDED_SECONDS = 180


def fill_tallies(conn: psycopg.Connection[Any]) -> None:
    """Fill days, then hours, quarters, five minutes and minutes: every kind in each, in several outcomes."""
    conn.execute(
        f"""
        WITH times AS (SELECT date_trunc('day', now(), 'UTC') AS today, date_trunc('hour', now(), 'UTC') AS hour),
        minutes (m) AS (
            SELECT generate_series(today - interval '89 days', today - interval '9 days', '1 day') FROM times
            UNION ALL
            SELECT generate_series(today - interval '8 days', hour - interval '27 hours', '1 hour') FROM times
            UNION ALL
            SELECT generate_series(hour - interval '26 hours', hour - interval '7 hours 15 minutes', '15 minutes')
            FROM times
            UNION ALL
            SELECT generate_series(hour - interval '7 hours', hour - interval '2 hours 5 minutes', '5 minutes')
            FROM times
            UNION ALL
            SELECT generate_series(hour - interval '2 hours', now() - interval '3 minutes', '1 minute') FROM times)
        INSERT INTO holdfast.tally (minute, jobs, times, outcome, queue, kind)
        SELECT m, 40 * {BUCKETS}, ARRAY(SELECT 40 * 512 + 256 * side + 60 + 2 * n
                FROM generate_series(1, {BUCKETS}) AS n, generate_series(0, 1) AS side),
            outcome::holdfast.outcome, 'queue' || k % {QUEUES}, 'estate.kind' || k
        FROM minutes, unnest(ARRAY['completed', 'failed', 'retry']) AS outcome, generate_series(0, {KINDS - 1}) AS k
        """.encode()
    )
    conn.execute(
        f"""
        INSERT INTO holdfast.tally (minute, jobs, times, outcome, queue, kind)
        SELECT date_trunc('minute', now() - n / {UNFOLDED_A_SECOND} * interval '1 second'), 3,
            ARRAY[2 * 512 + 60 + n % {BUCKETS}, 512 + 80, 3 * 512 + 256 + 60 + n % {BUCKETS}],
            'completed', 'queue' || n % {QUEUES}, 'estate.kind' || n % {KINDS}
        FROM generate_series(0, {UNFOLDED_A_SECOND * UNFOLDED_SECONDS - 1}) AS n
        """.encode()
    )
