"""Countable promises: bytes, calls and statements per batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._model.new_job import Envelope, NewJob
from holdfast._store.enqueue import enqueue_jobs
from labs.bench.load import KIND, PAYLOAD, load_jobs
from labs.bench.wal import BATCH, BYTES, Cycle
from labs.bench.worker import Worker
from tests.labs.bench.wire import recorded

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg


@pytest.fixture
def conn(connect: Callable[..., psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    return connect(prepare_threshold=0)


def test_a_job_costs_few_bytes_of_wal(conn: psycopg.Connection[Any]) -> None:
    assert conn.execute("SHOW full_page_writes").fetchone() == ("off",)
    cycle = Cycle(conn)
    for _ in range(20):
        cycle.run()
    assert sum(cycle.bytes_per_job.values()) <= BYTES, cycle.bytes_per_job


def test_many_jobs_are_enqueued_by_one_call(conn: psycopg.Connection[Any]) -> None:
    jobs = [NewJob[object](Envelope(KIND), PAYLOAD)] * BATCH
    run_sync(conn, enqueue_jobs(jobs))
    with recorded(conn) as wire:
        run_sync(conn, enqueue_jobs(jobs))
    assert (wire.calls, wire.round_trips) == (1, 1)


def test_a_batch_is_claimed_by_one_call_and_finished_by_one(conn: psycopg.Connection[Any]) -> None:
    worker = Worker(conn)
    load_jobs(conn, 2 * BATCH)
    worker.finish(worker.claim(BATCH).jobs)
    with recorded(conn) as claiming:
        jobs = worker.claim(BATCH).jobs
    with recorded(conn) as finishing:
        worker.finish(jobs)
    assert len(jobs) == BATCH
    assert (claiming.calls, claiming.round_trips) == (1, 1)
    assert (finishing.calls, finishing.round_trips) == (1, 1)


def test_a_plain_batch_is_finished_by_a_single_statement(conn: psycopg.Connection[Any]) -> None:
    worker = Worker(conn)
    load_jobs(conn, BATCH)
    jobs = worker.claim(BATCH).jobs
    with conn.transaction():
        worker.finish(jobs)
        assert commands_so_far(conn) == 1
        written = conn.execute(
            "SELECT count(*) FROM holdfast.job_history WHERE xmin = pg_current_xact_id()::xid AND cmin = '0'"
        ).fetchone()
    assert written == (BATCH,)


def test_commands_are_counted(conn: psycopg.Connection[Any]) -> None:
    with conn.transaction():
        assert commands_so_far(conn) == 0
        load_jobs(conn, 1)
        load_jobs(conn, 1)
        conn.execute("SELECT count(*) FROM holdfast.job")
        assert commands_so_far(conn) == 3


def commands_so_far(conn: psycopg.Connection[Any]) -> int:
    """How many commands of this transaction have written: PostgreSQL numbers them, and a new row has the next one."""
    conn.execute("INSERT INTO holdfast.order_stop (order_key, job_id, stopped_at) VALUES (gen_random_uuid(), 0, now())")
    row = conn.execute("SELECT max(cmin::text::int) FROM holdfast.order_stop").fetchone()
    assert row is not None
    return int(row[0])
