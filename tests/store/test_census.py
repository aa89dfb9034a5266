from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._store.inspect import (
    KindCount,
    read_census,
    take_census,
)
from tests.kit.workers import number

if TYPE_CHECKING:
    import psycopg

    from tests.kit.workers import Connect


PAGES = """CREATE OR REPLACE FUNCTION holdfast.census_pages(whole boolean) RETURNS bigint
    LANGUAGE sql IMMUTABLE RETURN CASE WHEN whole THEN {} ELSE {} END"""


def enqueue(conn: psycopg.Connection[Any], count: int = 1, **job: Any) -> None:
    conn.execute("SELECT count(*) FROM holdfast.enqueue_jobs(%s)", [json.dumps([{"kind": "mail", **job}] * count)])


def counted(conn: psycopg.Connection[Any]) -> list[KindCount]:
    return run_sync(conn, read_census()).lines


def test_no_count_was_made_yet(connect: Connect) -> None:
    census = run_sync(connect(), read_census())
    assert (census.at, census.lines) == (None, [])


def test_live_jobs_are_counted_by_queue_and_kind(connect: Connect) -> None:
    conn = connect()
    enqueue(conn, 3)
    enqueue(conn, 2, queue="pdf", kind="render", delay_ms=60_000)
    assert run_sync(conn, take_census(every_ms=0))
    first, second = counted(conn)
    assert first[:7] == ("default", "mail", 3, 3, 0, 0, 0)
    assert first.oldest_due_at is not None
    assert second == KindCount("pdf", "render", pending=2)


def test_what_runs_is_counted_and_what_is_stuck(connect: Connect) -> None:
    conn = connect()
    enqueue(conn, 4)
    conn.execute(
        "UPDATE holdfast.job SET status = 'processing', lock_token = 1, locked_by = 1,"
        " locked_until = now() + (id - 2.5) * interval '1 hour' WHERE id > 1"
    )
    run_sync(conn, take_census(every_ms=0))
    (line,) = counted(conn)
    assert (line.pending, line.processing, line.stuck) == (1, 3, 1)


def test_a_count_is_not_made_again_at_once(connect: Connect) -> None:
    conn = connect()
    assert run_sync(conn, take_census(every_ms=60_000))
    enqueue(conn)
    assert not run_sync(conn, take_census(every_ms=60_000))
    assert counted(conn) == []
    assert number(conn, "SELECT count(*) FROM holdfast.census") == 1


@pytest.mark.parametrize(
    ("took", "rests"),
    [
        pytest.param(2, 200, id="a hundred times as long as it took"),
        pytest.param(60, 300, id="five minutes at most, since it may only have waited"),
    ],
)
def test_after_a_count_no_worker_counts_for(connect: Connect, took: int, rests: int) -> None:
    conn = connect()
    run_sync(conn, take_census(every_ms=0))
    ago = "UPDATE holdfast.census SET seconds = %s, at = at - %s * interval '1 second'"
    conn.execute(ago, [took, rests - 50])
    assert not run_sync(conn, take_census(every_ms=0))
    conn.execute(ago, [took, 51])
    assert run_sync(conn, take_census(every_ms=0))


def test_two_do_not_count_at_once(connect: Connect) -> None:
    first, second = connect(), connect()
    run_sync(first, take_census(every_ms=0))
    first.execute("UPDATE holdfast.census SET seconds = 0, at = at - interval '30 seconds'")
    with first.transaction():
        assert run_sync(first, take_census(every_ms=0))
        assert not run_sync(second, take_census(every_ms=0))


def test_a_page_counts_no_large_table(connect: Connect) -> None:
    conn = connect()
    enqueue(conn, 500)
    conn.execute(PAGES.format(2, 50_000))
    assert not run_sync(conn, take_census(every_ms=0, whole=True))
    assert run_sync(conn, take_census(every_ms=0))


def test_of_a_very_large_table_a_sample_is_counted(connect: Connect) -> None:
    conn = connect()
    enqueue(conn, 20_000)
    pages = number(conn, "SELECT pg_relation_size('holdfast.job') / 8192")
    conn.execute(PAGES.format(1_000, pages // 2))
    run_sync(conn, take_census(every_ms=0))
    census = run_sync(conn, read_census())
    assert census.sampled == pytest.approx(0.5, abs=0.01)
    assert census.lines[0].pending == pytest.approx(20_000, rel=0.4)


def test_the_clock_may_be_set_back(connect: Connect) -> None:
    conn = connect()
    conn.execute("INSERT INTO holdfast.census VALUES (now() + interval '1 hour', 0, 1, '{}')")
    assert run_sync(conn, take_census(every_ms=60_000))
    assert number(conn, "SELECT count(*) FROM holdfast.census") == 1


def test_each_count_leaves_a_landmark_a_minute(connect: Connect) -> None:
    conn = connect()
    enqueue(conn, 7)
    run_sync(conn, take_census(every_ms=0))
    run_sync(conn, take_census(every_ms=0))
    assert 1 <= number(conn, "SELECT count(*) FROM holdfast.landmark") <= 2
    assert number(conn, "SELECT max(last_id) FROM holdfast.landmark") == 7
