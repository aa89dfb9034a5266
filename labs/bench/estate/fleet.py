"""Creates workers, queues, schedules and their runs, and audit entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from labs.bench.estate.jobs import KINDS, QUEUES

if TYPE_CHECKING:
    import psycopg

LIVE, STOPPED = 30, 2_700
RUNNERS = ("outbox", "maintenance", "reaper", "relay", "estate.cleanup", "estate.export")
AUDITED = 50_000
# They send no heartbeat again, and count as live for as long as a measurement may take.
_ALIVE = "now() + interval '2 hours'"


def fill_fleet(conn: psycopg.Connection[Any], *, runs_a_day: int) -> None:
    _workers(conn)
    conn.execute(
        f"""
        INSERT INTO holdfast.queue (name, concurrency)
        SELECT 'queue' || q, 10 FROM generate_series(1, {QUEUES - 1}) AS q
        """.encode()
    )
    conn.execute(
        """
        INSERT INTO holdfast.schedule (name, what, schedule, declared, next_at)
        SELECT 'estate.runner' || n, 'runner', 'every 3600s', 'every 3600s', now() + n * interval '1 minute'
        FROM generate_series(1, 20) AS n
        UNION ALL SELECT 'maintenance', 'runner', 'every 3600s', 'every 3600s', now() + interval '2 hours'
        """
    )
    # Nearly all are of one runner, one a minute and worker.
    conn.execute(
        f"""
        INSERT INTO holdfast.run (started_at, finished_at, worker_id, runner, outcome, counts)
        SELECT t, t + interval '50 milliseconds', 1 + n % {LIVE},
            (%s::text[])[CASE WHEN n % 10 < 9 THEN 1 ELSE 2 + n / 10 % {len(RUNNERS) - 1} END],
            CASE WHEN n % 1000 = 0 THEN 'failed' ELSE 'completed' END, '{{"processed": 100}}'
        FROM (SELECT n, now() - n * interval '1 day' / {runs_a_day} AS t
              FROM generate_series(1, {29 * runs_a_day}) AS n) AS g
        """.replace("% ", "%% ").encode(),
        (list(RUNNERS),),
    )
    conn.execute(
        f"""
        INSERT INTO holdfast.audit (at, who, role, action, target, jobs, detail)
        SELECT now() - n * interval '5 minutes', 'person ' || n % 20, 'operator', 'jobs.retry', n::text, 1,
            '{{"filter": {{"kind": "estate.kind7"}}}}'
        FROM generate_series({AUDITED}, 1, -1) AS n
        """.encode()
    )


def _workers(conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        f"""
        INSERT INTO holdfast.worker (started_at, heartbeat_at, reaped_at, stopped_at, pid, name, host, version, queues,
            kinds, counters, stop_reason)
        SELECT t, coalesce(stopped, {_ALIVE}), coalesce(stopped, {_ALIVE}), stopped, n, 'worker ' || n,
            'host ' || n % 10, '1.0', ARRAY(SELECT 'queue' || q FROM generate_series(0, {QUEUES - 1}) AS q),
            ARRAY(SELECT 'estate.kind' || k FROM generate_series(0, {KINDS - 1}) AS k),
            '{{"job_completed": 1000000, "job_failed": 100}}', CASE WHEN stopped IS NOT NULL THEN 'stopped' END
        FROM (SELECT n, now() - {STOPPED + LIVE + 1} * interval '45 minutes' + n * interval '45 minutes' AS t,
                  CASE WHEN n <= {STOPPED} THEN now() - ({STOPPED} - n) * interval '45 minutes' END AS stopped
              FROM generate_series(1, {STOPPED + LIVE}) AS n) AS g
        """.encode()
    )
