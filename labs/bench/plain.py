"""The plainest possible pair, to compare with: one kind, no fence, no floor, no keys, no tallies.

Its tables have the columns, indexes and fill factor of ours; its history is one table instead of many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from labs.bench.load import KIND

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

_SCHEMA = """
CREATE SCHEMA plain;
CREATE TABLE plain.job (LIKE holdfast.job INCLUDING ALL);
ALTER TABLE plain.job SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0);
CREATE TABLE plain.job_history (LIKE holdfast.job_history INCLUDING ALL);
"""
CLAIM = f"""
WITH due AS MATERIALIZED (
    SELECT id FROM plain.job
    WHERE status = 'pending' AND queue = 'default' AND kind = '{KIND}' AND priority = 5 AND later IS NULL
      AND available_at <= now()
    ORDER BY available_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE plain.job SET status = 'processing', attempt = attempt + 1, locked_by = 1,
    lock_token = (SELECT nextval('holdfast.token')), locked_until = now() + interval '60 seconds'
WHERE id = ANY (ARRAY(SELECT id FROM due))
RETURNING id, lock_token, queue, kind, payload::text, headers::text, coalesce(payload_version, 1::smallint), attempt,
    max_attempts, priority, available_at, coalesce(chain_id, id), order_key, coalesce(expires_at <= now(), false),
    cancel_requested_at IS NOT NULL
"""
FINISH = """
WITH gone AS (DELETE FROM plain.job WHERE id = ANY (%(ids)s::bigint[]) RETURNING *)
INSERT INTO plain.job_history (id, created_at, available_at, finished_at, worker_id, status, attempt, max_attempts,
    priority, payload_version, chain_id, replay_of, queue, kind, payload, headers, unique_key, last_error_code,
    last_error)
SELECT id, created_at, available_at, now(), locked_by, 'completed', attempt, max_attempts,
    priority, payload_version, chain_id, replay_of, queue, kind, payload, headers, unique_key, last_error_code,
    last_error
FROM gone
"""
_ENQUEUE = f"""
INSERT INTO plain.job (created_at, available_at, queue, kind, payload)
SELECT clock_timestamp(), clock_timestamp(), 'default', '{KIND}', payload FROM unnest(%(payloads)s::json[]) AS payload
"""


class Plain:
    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn

    def create(self) -> None:
        self.conn.execute(_SCHEMA, prepare=False)

    def enqueue(self, payloads: Sequence[str]) -> None:
        self.conn.execute(_ENQUEUE, {"payloads": list(payloads)})

    def claim(self, limit: int = 500) -> list[tuple[Any, ...]]:
        return self.conn.execute(CLAIM, {"limit": limit}).fetchall()

    def finish(self, rows: Sequence[tuple[Any, ...]]) -> None:
        ids = f"{{{','.join([str(row[0]) for row in rows])}}}"
        done = self.conn.execute(FINISH, {"ids": ids}).rowcount
        assert done == len(rows)
