"""A plain finish completes what the function would, and leaves the rest to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._store.finish import Ending, complete_plain
from holdfast._store.sleeper import watch_chains
from holdfast._store.statement import pin_plans
from tests.kit.workers import COMPLETED, Worker, enqueue, job, number, statuses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect

WRITTEN = """
    SELECT (to_jsonb(h) - '{id,created_at,available_at,finished_at,chain_id}'::text[])::text
    FROM holdfast.job_history h WHERE id = ANY (%s)
    UNION ALL
    SELECT (to_jsonb(a) - '{job_id,ended_at,lock_token}'::text[])::text FROM holdfast.attempt a WHERE job_id = ANY (%s)
    ORDER BY 1
"""


def plain(worker: Worker, jobs: Sequence[ClaimedJob], *, seconds: float = 0.5) -> list[int] | None:
    run_sync(worker.conn, pin_plans())
    return run_sync(worker.conn, complete_plain(worker.id, [Ending(one, COMPLETED, seconds) for one in jobs]))


def claimed(connect: Connect, jobs: int, **options: Any) -> tuple[Worker, list[ClaimedJob]]:
    worker = Worker(connect())
    enqueue(worker.conn, *[job(**options) for _ in range(jobs)])
    return worker, worker.claim()


@pytest.mark.parametrize("attempt", [1, 2])
def test_it_writes_what_the_function_writes(connect: Connect, attempt: int) -> None:
    worker, jobs = claimed(connect, 4, headers={"a": "1"})
    worker.conn.execute(
        "UPDATE holdfast.job SET attempt = %s, claimed_at = now(), available_at = now() - interval '12 ms'", [attempt]
    )
    one, other = jobs[:2], jobs[2:]
    assert plain(worker, one) is None
    worker.end(other)
    worker.conn.execute("UPDATE holdfast.job_history SET ran_ms = 500 WHERE ran_ms IS NULL")
    worker.conn.execute("UPDATE holdfast.attempt SET ran_ms = 500 WHERE ran_ms IS NULL")
    found = [worker.conn.execute(WRITTEN, [[each.id for each in part]] * 2).fetchall() for part in (one, other)]
    assert found[0] == found[1]
    assert len(found[0]) == 2 * attempt
    assert number(worker.conn, "SELECT sum(jobs) FROM holdfast.tally WHERE outcome = 'completed'") == 4


@pytest.mark.parametrize(
    "change",
    [
        "order_key = 'a', order_seq = id",
        "limits = '{a}'",
        "steps = true",
        "awaited = true",
        "blockers_left = 0",
        "lock_token = lock_token + 1",
        "locked_by = locked_by + 1",
    ],
)
def test_what_is_not_plain_or_not_its_own_is_left(connect: Connect, change: str) -> None:
    worker, jobs = claimed(connect, 3)
    worker.conn.execute(f"UPDATE holdfast.job SET {change} WHERE id = {jobs[1].id}".encode())
    assert sorted(plain(worker, jobs) or []) == [jobs[0].id, jobs[2].id]
    assert statuses(worker.conn) == {jobs[0].id: "completed", jobs[1].id: "processing", jobs[2].id: "completed"}


def test_without_the_partitions_of_its_day_it_leaves_all(connect: Connect) -> None:
    worker, jobs = claimed(connect, 2)
    today = number(worker.conn, "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')")
    worker.conn.execute(f"DROP TABLE holdfast.job_history_{today}".encode())
    assert plain(worker, jobs) == []
    assert set(statuses(worker.conn).values()) == {"processing"}


def test_it_waits_for_a_locked_row_no_longer_than_the_function(connect: Connect) -> None:
    worker, jobs = claimed(connect, 2)
    other = connect()
    with other.transaction():
        other.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [jobs[0].id])
        with pytest.raises(psycopg.errors.LockNotAvailable):
            plain(worker, jobs)
    assert plain(worker, jobs) is None
    assert number(worker.conn, "SELECT current_setting('lock_timeout')") == "0"


def test_watchers_of_chains_are_notified(connect: Connect) -> None:
    worker, jobs = claimed(connect, 2)
    listening = connect()
    listening.execute("LISTEN holdfast_watch_me")
    run_sync(listening, watch_chains("me", [jobs[0].chain_id]))
    assert plain(worker, jobs) is None
    assert [note.payload for note in listening.notifies(timeout=5, stop_after=1)] == [f"ended {jobs[0].chain_id}"]
