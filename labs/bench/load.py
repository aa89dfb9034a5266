"""Rows by the million, without the way they would have come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from labs.bench.ground import progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

KIND = "bench.noop"
PAYLOAD = f'{{"data":"{"x" * 109}"}}'
CHUNK = 250_000

assert len(PAYLOAD) == 120


def load_jobs(  # noqa: PLR0913 - one keyword per column that matters
    conn: psycopg.Connection[Any],
    count: int,
    *,
    into: str = "holdfast.job",
    kinds: Sequence[str] = (KIND,),
    queues: Sequence[str] = ("default",),
    priorities: Sequence[int] = (5,),
    due: str = "clock_timestamp()",
    order_key: str | None = None,
    in_flight: bool = False,
    payload: str = PAYLOAD,
) -> None:
    """Insert pending jobs spread over the kinds, queues and priorities, or jobs that another worker runs."""
    status = "processing" if in_flight else "pending"
    lease = "1, 1, now() + interval '1 hour' + i * interval '1 millisecond'" if in_flight else "NULL, NULL, NULL"
    later, is_later = (
        (", later", f", holdfast.is_later({due}, NULL, clock_timestamp())") if into == "holdfast.job" else ("", "")
    )
    for number in _chunks(count, into):
        conn.execute(
            f"""
            INSERT INTO {into} (id, created_at, available_at, status, attempt, locked_by, lock_token, locked_until,
                priority, shard, queue, kind, payload, order_key, order_seq{later})
            SELECT n.id, clock_timestamp(), {due}, '{status}', {int(in_flight)}, {lease},
                (%(priorities)s::smallint[])[1 + n.i / 7 %% {len(priorities)}], n.id & 63,
                (%(queues)s::text[])[1 + n.i %% {len(queues)}], (%(kinds)s::text[])[1 + n.i %% {len(kinds)}],
                %(payload)s::json, k.key, CASE WHEN k.key IS NOT NULL THEN n.id END{is_later}
            FROM (SELECT nextval('holdfast.job_id_seq') AS id, i FROM generate_series(1, {number}) AS i) AS n,
                (SELECT %(key)s::text AS key) AS k
            """.encode(),
            {
                "priorities": list(priorities),
                "queues": list(queues),
                "kinds": list(kinds),
                "payload": payload,
                "key": order_key,
            },
            prepare=False,
        )


def load_history(conn: psycopg.Connection[Any], count: int) -> None:
    """Insert jobs that were completed within the last hour."""
    for number in _chunks(count, "holdfast.job_history"):
        conn.execute(
            f"""
            INSERT INTO holdfast.job_history (id, created_at, available_at, finished_at, worker_id, status, attempt,
                max_attempts, priority, queue, kind, payload)
            SELECT nextval('holdfast.job_id_seq'), now(), now(), now() - i * interval '1 hour' / {number}, 1,
                'completed', 1, 3, 5, 'default', '{KIND}', '{PAYLOAD}'
            FROM generate_series(1, {number}) AS i
            """.encode(),
            prepare=False,
        )


def _chunks(count: int, what: str) -> list[int]:
    if count >= CHUNK:
        progress(f"loading {count:,} rows into {what}")
    return [min(CHUNK, count - begun) for begun in range(0, count, CHUNK)]
