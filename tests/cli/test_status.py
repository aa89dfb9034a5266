"""`holdfast status`: whether all is well, in a sentence and as an exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._store.worker import pause_queue, register_worker
from tests.kit.commands import holdfast
from tests.kit.workers import enqueue, job

if TYPE_CHECKING:
    import psycopg


def test_the_exit_status_follows_the_worst_problem(database: str, conn: psycopg.Connection[Any]) -> None:
    output = holdfast("status", database=database)
    assert (output.status, output.err) == (4, "")
    assert output.out.splitlines()[:2] == ["1 problem", "warning: No worker is alive, and no job is due."]
    run_sync(conn, register_worker("w", queues=["default"], kinds=["k"]))
    assert holdfast("status", database=database) == (0, "All is well\n", "")
    run_sync(conn, pause_queue("default", by="ann", reason="deploy"))
    output = holdfast("status", database=database)
    assert output.status == 4
    assert "by ann (deploy); no due job waits." in output.out
    assert output.out.endswith("Resume it when the reason is gone. holdfast queues resume default\n")
    enqueue(conn, job(kind="pdf", queue="pdf"))
    conn.execute("TRUNCATE holdfast.census")  # a count is used again for a while
    output = holdfast("status", "--json", database=database)
    assert output.status == 5
    assert (output.json["ok"], output.json["verdict"]) == (False, "2 problems")
    assert [problem["code"] for problem in output.json["problems"]] == ["unserved_kind", "paused"]


def test_a_viewer_of_the_database_may_ask(database: str, conn: psycopg.Connection[Any]) -> None:
    run_sync(conn, register_worker("w", queues=["default"], kinds=["k"]))
    conn.execute("INSERT INTO holdfast.order_stop VALUES ('account 7', 1, now())")
    conn.execute("UPDATE holdfast.worker SET heartbeat_at = now() - interval '2 minutes'")
    output = holdfast("status", database=f"{database}?options=-c%20role%3Dholdfast_viewer")
    assert (output.status, output.err) == (5, ""), output
    assert "The worker w (process " in output.out
    assert "The order key account 7 is stopped since job 1 failed; no job waits." in output.out
