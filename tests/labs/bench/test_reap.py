"""The buffers of the reaper's pass while a session holds an old snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from psycopg import IsolationLevel

from holdfast._drivers import run_sync
from holdfast._model.retry import Retry
from holdfast._store.lease import reap_jobs
from labs.bench.explain import explained
from labs.bench.load import KIND, load_jobs
from labs.bench.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

pytestmark = pytest.mark.nightly

FLAT = 2


def test_a_pass_does_not_look_at_what_was_finished_long_ago(connect: Callable[..., psycopg.Connection[Any]]) -> None:
    conn, pin = connect(), connect(autocommit=False)
    buffers_of_a_pass(conn)  # the first also reads the catalogue, to make its plans
    fresh = buffers_of_a_pass(conn)
    pin.isolation_level = IsolationLevel.REPEATABLE_READ
    pin.execute("SELECT count(*) FROM holdfast.job")
    load_jobs(conn, 20_000)
    Worker(conn).drain()
    # The least of three: statistics that come meanwhile have plans made anew.
    assert min(buffers_of_a_pass(conn) for _ in range(3)) <= FLAT * fresh


def buffers_of_a_pass(conn: psycopg.Connection[Any]) -> int:
    """Reap ten jobs whose worker has died."""
    worker = Worker(conn)
    load_jobs(conn, 10)
    ids = [job.id for job in worker.claim(10).jobs]
    row = conn.execute("SELECT (now() - interval '5 seconds')::text").fetchone()
    assert row is not None
    conn.execute("UPDATE holdfast.job SET locked_until = now() - interval '1 second' WHERE id = ANY (%s)", [ids])
    touched = run_sync(conn, explained(reap_jobs({KIND: Retry()}, since=row[0])))
    assert touched.rows == 10
    return touched.buffers
