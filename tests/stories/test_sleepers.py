"""Sleeping stories are out of the way of all that is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._store.claim import claim_jobs
from tests.kit.workers import Worker, fill

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    Connection = psycopg.Connection[Any]

STORIES = 20_000


def buffers(worker: Worker) -> int:
    """Return how many pages a claim of fifty jobs reads, and roll it back."""
    statement = claim_jobs(worker.id, {"default": 50}, worker.leases)
    with worker.conn.transaction(force_rollback=True):
        row = worker.conn.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.sql}".encode(), statement.params
        ).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_a_claim_beside_sleeping_stories_reads_as_little(connect: Callable[..., Connection]) -> None:
    conn = connect()
    worker = Worker(conn)
    fill(conn, 1000)
    conn.execute("VACUUM ANALYZE holdfast.job")
    before = min(buffers(worker) for _ in range(3))
    due = "now() + (3600 + n) * interval '1 second'"
    fill(conn, STORIES, available_at=due, later="true", steps="true", attempt="0")
    conn.execute(
        """
        INSERT INTO holdfast.step (job_id, at, due, name, result)
        SELECT j.id, now(), CASE WHEN n = 5 THEN j.available_at END, 'step ' || n, '1'
        FROM holdfast.job j, generate_series(1, 5) AS n WHERE j.steps
        """
    )
    conn.execute("VACUUM ANALYZE holdfast.job, holdfast.step")
    after = min(buffers(worker) for _ in range(3))
    assert after <= 1.2 * before, f"{before} pages before, {after} after"
    assert run_sync(conn, claim_jobs(worker.id, {"default": 50}, worker.leases)).jobs != []
