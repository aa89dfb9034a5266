"""Sleeping stories are out of the way of all that is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._store.claim import claim_jobs
from holdfast._store.lease import reap_jobs
from holdfast._store.sleeper import look_ahead
from tests.kit.pace import AT_ONCE
from tests.kit.workers import Worker, fill

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from holdfast._store.statement import Statement

    Connection = psycopg.Connection[Any]


def pages(worker: Worker, statement: Statement[Any]) -> int:
    """Return how many pages a statement reads, and roll it back."""
    with worker.conn.transaction(force_rollback=True):
        row = worker.conn.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.sql}".encode(), statement.params
        ).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.parametrize("stories", [20_000, pytest.param(100_000, marks=pytest.mark.prove)])
def test_a_worker_beside_sleeping_stories_reads_as_little(connect: Callable[..., Connection], stories: int) -> None:
    """A claim at most a fifth more, and a few pages more for what an idle worker does: a look, a pass of the reaper.

    Measured beside 100,000: 474 pages for a claim, 457 without them; 38 for a look, 27 without; 4 for a pass.
    """
    conn = connect()
    worker = Worker(conn)
    fill(conn, 1000)
    conn.execute("VACUUM ANALYZE holdfast.job")
    parts = {
        "claim": claim_jobs(worker.id, {"default": 50}, worker.leases),
        "look": look_ahead(worker.id, ["default"], worker.leases),
        "reap": reap_jobs(dict.fromkeys(worker.leases, AT_ONCE)),
    }
    before = {name: min(pages(worker, statement) for _ in range(3)) for name, statement in parts.items()}
    due = "now() + (3600 + n) * interval '1 second'"
    fill(conn, stories, available_at=due, later="true", steps="true", attempt="0")
    conn.execute(
        """
        INSERT INTO holdfast.step (job_id, at, due, name, result)
        SELECT j.id, now(), CASE WHEN n = 5 THEN j.available_at END, 'step ' || n, '1'
        FROM holdfast.job j, generate_series(1, 5) AS n WHERE j.steps
        """
    )
    conn.execute("VACUUM ANALYZE holdfast.job, holdfast.step")
    after = {name: min(pages(worker, statement) for _ in range(3)) for name, statement in parts.items()}
    shown = f"{before} pages before, {after} after"
    assert after["claim"] <= 1.2 * before["claim"], shown
    assert after["look"] <= before["look"] + 16, shown
    assert after["reap"] <= before["reap"] + 4, shown
    assert run_sync(conn, claim_jobs(worker.id, {"default": 50}, worker.leases)).jobs != []
