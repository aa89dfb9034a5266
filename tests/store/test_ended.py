"""An ended job is found by its id, whatever the day it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._store.chain import chain_ends
from holdfast._store.job import get_job
from holdfast._store.search import replay_job
from tests.engine.test_maintenance import add_day
from tests.kit.workers import number

if TYPE_CHECKING:
    import psycopg

    from tests.kit.workers import Connect

ENDED = """
INSERT INTO holdfast.{}
    (id, created_at, available_at, finished_at, status, attempt, max_attempts, priority, queue, kind, chain_id, next_id)
SELECT %s, at, at, at, %s, 1, 3, 5, 'default', 'a', %s, %s FROM (SELECT now() - %s * interval '1 day' AS at) AS ended"""


def end(
    conn: psycopg.Connection[Any], job: int, days: int, *, chain: int | None = None, then: int | None = None
) -> None:
    conn.execute(ENDED.format("job_history").encode(), [job, "completed", chain, then, days])


def end_badly(conn: psycopg.Connection[Any], job: int, days: int) -> None:
    conn.execute(ENDED.format("job_failed").encode(), [job, "failed", None, None, days])


@pytest.mark.nightly(daily=["False-0", "False-1", "False-7", "True-12", "True--1", "True--2"])
@pytest.mark.parametrize("days", [0, 1, 2, 3, 7, 12, -1, -2, -9])
@pytest.mark.parametrize("landmark", [False, True])
def test_a_chain_is_found_on_whatever_day_it_ended(connect: Connect, days: int, landmark: bool) -> None:
    """Days to come too: the clock may have been set back."""
    conn = connect()
    for day in range(2, 15):
        add_day(conn, "job_history", day)
    conn.execute("SELECT holdfast.ensure_partitions(9)")
    conn.execute("CREATE TABLE public.other_id_index (LIKE holdfast.replay)")
    conn.execute("CREATE TABLE holdfast.keeper (id bigint) PARTITION BY RANGE (id)")
    conn.execute("CREATE TABLE holdfast.keeper_of_none PARTITION OF holdfast.keeper FOR VALUES FROM (1) TO (2)")
    if landmark:
        conn.execute("INSERT INTO holdfast.landmark VALUES (now() - interval '13 days', 4), (now(), 1000)")
    end(conn, 5, 12, then=6)
    end(conn, 6, days, chain=5)
    end_badly(conn, 7, max(days, -14) if days < 2 else 1)
    ends = run_sync(conn, chain_ends([5, 7, 8]))
    assert {chain: end.status for chain, end in ends.items()} == {5: "completed", 7: "failed", 8: "not_found"}
    assert ends[5].job_id == 6
    assert number(conn, "SELECT status::text FROM holdfast.find_ended(6, '-infinity')") == "completed"
    jobs = {job: run_sync(conn, get_job(job)) for job in (5, 6, 7, 8)}
    assert {job: row and (row.chain_id, row.status, row.next_id) for job, row in jobs.items()} == {
        5: (5, "completed", 6),
        6: (5, "completed", None),
        7: (7, "failed", None),
        8: None,
    }
    assert run_sync(conn, replay_job(7)) is not None
    assert run_sync(conn, replay_job(6)) is None


def test_a_look_ends_where_the_id_was_drawn(connect: Connect) -> None:
    conn = connect()
    for day in range(2, 60):
        add_day(conn, "job_failed", day)
    spans = "SELECT cardinality(holdfast.history_spans(%s))"
    assert number(conn, spans, 500) > 15
    conn.execute(
        "INSERT INTO holdfast.landmark VALUES (now() - interval '20 days', 100), (now() - interval '1 day', 400)"
    )
    far, near = number(conn, spans, 300), number(conn, spans, 500)
    assert near < far < number(conn, spans, 50)


def test_a_look_within_an_open_transaction_keeps_what_was_written(connect: Connect) -> None:
    """The subtransactions that give locks back take nothing else back."""
    conn = connect()
    end(conn, 5, 1)
    with conn.transaction():
        conn.execute("SELECT holdfast.enqueue('a', blockers => '{5}')")
        conn.execute("SELECT holdfast.publish('a', '{}')")
    assert number(conn, "SELECT count(*) FROM holdfast.job WHERE status = 'pending'") == 1
    assert number(conn, "SELECT count(*) FROM holdfast.event") == 1
