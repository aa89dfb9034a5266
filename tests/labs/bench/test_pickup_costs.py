"""The cost of one pickup for the server, counted: locks, pages and WAL of the claim by name and of the finish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._store.finish import complete_plain
from holdfast._store.plain import claim_named
from holdfast._store.statement import pin_names, pin_plans
from labs.bench.fleet import number
from labs.bench.load import load_jobs
from labs.bench.worker import Worker, completed
from tests.labs.bench.written import written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg

    from holdfast._store.statement import Statement

pytestmark = pytest.mark.nightly

JOBS = 2_000
_LOCKS = (
    "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'"
    " AND relation >= 16384"  # not the catalogs, of which this query reads some
)


@dataclass(frozen=True, slots=True)
class Cost:
    locks: int
    """Relations that are locked: each index counts, and beyond sixteen they are in a table that all sessions share."""
    pages: float
    """Looked at, cached or not."""
    wal: float
    """Bytes."""


# Measured on PostgreSQL 15: 6 locks, 15 pages and 397 bytes; 11, 10 and 590.
MOST = {"claim": Cost(8, 20, 450), "finish": Cost(13, 15, 680)}


@pytest.fixture
def conn(connect: Callable[..., psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    conn: psycopg.Connection[Any] = connect(prepare_threshold=0)
    run_sync(conn, pin_names(local=False))
    run_sync(conn, pin_plans())
    return conn


def test_one_pickup_costs_the_server_little(conn: psycopg.Connection[Any]) -> None:
    worker = Worker(conn)
    load_jobs(conn, JOBS)
    conn.execute("VACUUM ANALYZE holdfast.job", prepare=False)
    ids = [row[0] for row in conn.execute("SELECT id FROM holdfast.job ORDER BY id").fetchall()]

    def claim(job: int) -> Statement[Any]:
        return claim_named(worker.id, [job], worker.queues, worker.leases)

    def finish(job: int) -> Statement[Any]:
        return complete_plain(worker.id, completed(run_sync(conn, claim(job))))

    for job in ids[:10]:  # first uses cost more
        assert run_sync(conn, finish(job)) is None
    found = {"claim": cost(conn, [*map(claim, ids[100:300])]), "finish": cost(conn, [*map(finish, ids[300:500])])}
    for name, most in MOST.items():
        assert found[name].locks <= most.locks, found
        assert found[name].pages <= most.pages, found
        assert found[name].wal <= most.wal, found


def cost(conn: psycopg.Connection[Any], statements: Sequence[Statement[Any]]) -> Cost:
    first, *others = statements
    with conn.transaction():
        run_sync(conn, first)
        locks = number(conn, _LOCKS)
    before = pages(conn)
    with written(conn) as wrote:
        for statement in others:
            run_sync(conn, statement)
    return Cost(locks, (pages(conn) - before) / len(others), wrote.wal / len(others))


def pages(conn: psycopg.Connection[Any]) -> int:
    conn.execute("SELECT pg_stat_force_next_flush()")
    return number(conn, "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()")
