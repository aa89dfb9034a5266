"""The cost of one job, counted on an otherwise idle server: the gate of the figures in labs/bench/peers/report.md."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import Holdfast, Job
from holdfast._model.new_job import Envelope, NewJob
from labs.bench.load import KIND, PAYLOAD, load_jobs
from labs.bench.wal import BYTES
from labs.bench.worker import Worker
from tests.kit.databases import clone, create_template
from tests.labs.bench.wire import recorded
from tests.labs.bench.written import written
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.nightly

BATCH = 500
JOBS = 5_000
LONGEST_SECONDS = 60.0
ENQUEUE_BYTES = 500
CLAIM_BYTES = 400
FINISH_BYTES = 450
PER_JOB = 0.04
"""Statements and commits of a worker: batches, with what it says when it starts, sleeps and stops."""


@pytest.fixture(scope="module")
def quiet(server_version: int) -> Iterator[Server]:
    """Yield a server that writes nothing by itself and logs every statement."""
    with Server(server_version, autovacuum="off", log_statement="all", log_line_prefix="%d ") as server:
        create_template(server)
        yield server


@pytest.fixture
def url(quiet: Server) -> Iterator[str]:
    with clone(quiet, "holdfast_template") as url:
        yield url


@pytest.fixture
def conn(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as conn:
        yield conn


def jobs(number: int) -> list[NewJob[object]]:
    return [NewJob[object](Envelope(KIND), PAYLOAD)] * number


def test_the_counters_count(conn: psycopg.Connection[Any]) -> None:
    conn.execute("CREATE TABLE counted (n int)")
    with written(conn) as nothing:
        pass
    with written(conn) as found:
        conn.execute("INSERT INTO counted SELECT generate_series(1, 10)", prepare=False)
        conn.execute("UPDATE counted SET n = 0 WHERE n = 5", prepare=False)
        conn.execute("DELETE FROM counted WHERE n = 6", prepare=False)
    assert (nothing.tuples, nothing.commits) == (0, 0)
    assert (found.tuples, found.commits) == (12, 3)


def test_enqueueing_one_job(conn: psycopg.Connection[Any]) -> None:
    app, [job] = Holdfast(), jobs(1)
    for _ in range(20):
        app.sync.enqueue(conn, job)
    with recorded(conn) as wire:
        app.sync.enqueue(conn, job)
    assert (wire.calls, wire.round_trips) == (1, 1)
    with written(conn) as found:
        for _ in range(100):
            app.sync.enqueue(conn, job)
    cost = found.per(100)
    assert cost.commits == 1
    assert cost.tuples == 1
    assert cost.wal <= ENQUEUE_BYTES, cost


def test_enqueueing_many(conn: psycopg.Connection[Any]) -> None:
    app = Holdfast()
    app.sync.enqueue_many(conn, jobs(BATCH))
    with written(conn) as found:
        app.sync.enqueue_many(conn, jobs(BATCH))
    assert found.commits == 1
    assert found.tuples == BATCH
    assert found.wal / BATCH <= ENQUEUE_BYTES, found.per(BATCH)


def test_claiming_and_finishing_a_batch(conn: psycopg.Connection[Any]) -> None:
    worker = Worker(conn)
    # Due at one moment: latencies on both sides of a bucket's bound would be two tallies.
    load_jobs(conn, 4 * BATCH, due="now()")
    worker.finish(worker.claim(BATCH).jobs)
    with written(conn) as claiming:
        claimed = worker.claim(BATCH).jobs
    with written(conn) as finishing:
        worker.finish(claimed)
    assert claiming.commits == finishing.commits == 1
    assert claiming.tuples == BATCH
    # Out of the live table, into history, and a tally.
    assert finishing.tuples == 2 * BATCH + 1
    assert claiming.wal / BATCH <= CLAIM_BYTES, claiming.per(BATCH)
    assert finishing.wal / BATCH <= FINISH_BYTES, finishing.per(BATCH)


def test_a_whole_drain(quiet: Server, url: str, conn: psycopg.Connection[Any]) -> None:
    """From enqueue to history, through a worker with everything switched on."""
    app = Holdfast(url)

    @app.job(KIND)
    async def noop(job: Job[None], data: str) -> None:
        pass

    before = statements(quiet, url)
    with written(conn) as found:
        for _ in range(0, JOBS, BATCH):
            app.sync.enqueue_many(conn, jobs(BATCH))
        asyncio.run(drain(app))
    cost = found.per(JOBS)
    # Enqueue, claim, out of the live table, into history; a little for the worker's own rows.
    assert 4 <= cost.tuples <= 4.05, cost
    assert cost.wal <= BYTES, cost
    assert cost.commits <= PER_JOB, cost
    sent = (statements(quiet, url) - before) / JOBS
    assert sent <= PER_JOB


async def drain(app: Holdfast) -> None:
    until = time.monotonic() + LONGEST_SECONDS
    async with app.worker(queues={"default": 100}, batch_size=500) as worker:
        while worker.counts.get("job_completed", 0) < JOBS:
            assert time.monotonic() < until
            await asyncio.sleep(0.005)


def statements(server: Server, url: str) -> int:
    """How many statements the database was asked to execute, from the server's log."""
    log = (server.data.parent / "log").read_text(errors="replace")
    return len(re.findall(rf"^{url.rsplit('/', 1)[1]} LOG:  (?:statement|execute [^:]*):", log, re.MULTILINE))
