"""The bytes on disk of a job or an event that is kept, with its indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._logs.failure import Failure
from holdfast._model.event import NewEvent
from holdfast._model.new_job import Envelope, NewJob
from holdfast._model.outcome import Failed
from holdfast._store.enqueue import enqueue_jobs
from holdfast._store.event import publish_events
from holdfast._store.finish import Ending, finish_jobs
from labs.bench.load import KIND
from labs.bench.steps import TOPIC, payload_of
from labs.bench.worker import Worker

if TYPE_CHECKING:
    import psycopg

ROWS = 5_000
BATCH = 500
_TABLES = {"live": "job", "completed": "job_history", "failed": "job_failed|attempt", "event": "event"}
_FAILURE = Failure("ValueError", "the customer has no address")
# As long as that of a handler that calls a library.
_FRAME = '  File "shop/orders.py", line {0}, in step_{0}\n    return send(order, to=address)\n'
_TRACEBACK = "".join(_FRAME.format(number) for number in range(12))


def bytes_kept(conn: psycopg.Connection[Any], size: int, scale: float) -> dict[str, float]:
    """Return the bytes on disk per row, by table."""
    rows = max(BATCH, round(ROWS * scale) // BATCH * BATCH)
    payload, found = payload_of(size), {}
    before = _sizes(conn)
    _enqueue(conn, payload, rows)
    found["live"] = _grown(conn, before, "live", rows)
    worker = Worker(conn)
    while jobs := worker.claim(BATCH).jobs:
        worker.finish(jobs)
    found["completed"] = _grown(conn, before, "completed", rows)
    _enqueue(conn, payload, rows)
    while jobs := worker.claim(BATCH).jobs:
        run_sync(conn, finish_jobs(worker.id, [Ending(job, Failed(_FAILURE), 0.1, _TRACEBACK) for job in jobs]))
    found["failed"] = _grown(conn, before, "failed", rows)
    for _ in range(0, rows, BATCH):
        run_sync(conn, publish_events([NewEvent(TOPIC, payload, key=str(n)) for n in range(BATCH)]))
    found["event"] = _grown(conn, before, "event", rows)
    return found


def _enqueue(conn: psycopg.Connection[Any], payload: str, rows: int) -> None:
    for _ in range(0, rows, BATCH):
        run_sync(conn, enqueue_jobs([NewJob[object](Envelope(KIND), payload)] * BATCH))


def _grown(conn: psycopg.Connection[Any], before: dict[str, int], name: str, rows: int) -> float:
    return (_sizes(conn)[name] - before[name]) / rows


def _sizes(conn: psycopg.Connection[Any]) -> dict[str, int]:
    found = {}
    for name, tables in _TABLES.items():
        row = conn.execute(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c"
            " WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r' AND c.relname ~ %s",
            [f"^({tables})(_[0-9_]+)?$"],
        ).fetchone()
        assert row is not None
        found[name] = int(row[0])
    return found
