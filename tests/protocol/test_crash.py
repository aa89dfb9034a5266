"""A sequence does not survive a crash under asynchronous commit: the same token is issued twice."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.errors import AbortReason
from holdfast._model.new_job import OrderKey
from holdfast._store.schema import migrate
from holdfast._store.worker import register_worker
from tests.kit.mutation import open_trap
from tests.kit.workers import Worker, enqueue, job, number
from tests.protocol.zombies import refused, rise
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast._store.claim import ClaimedJob

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def fragile(server_version: int) -> Iterator[Server]:
    """A server that writes the WAL out only for commits that request it."""
    with Server(server_version, autovacuum="off", bgwriter_lru_maxpages=0, wal_writer_delay="10s") as server:
        with psycopg.connect(server.url(), autocommit=True) as conn:
            migrate(conn)
        yield server


@pytest.fixture
def before(fragile: Server) -> Iterator[Connection]:
    """A session that does not wait for the disk, on an empty database that is safely there."""
    with psycopg.connect(fragile.url(), autocommit=True) as conn:
        conn.execute("DELETE FROM holdfast.job")
    conn = psycopg.connect(fragile.url(), autocommit=True, options="-c synchronous_commit=off")
    yield conn
    conn.close()


def crash(server: Server, conn: Connection) -> Connection:
    """Cut the power, start again, and return a new session."""
    conn.close()
    server.crash()
    server.start()
    return psycopg.connect(server.url(), autocommit=True)


def hold_back_the_log(conn: Connection) -> None:
    """From here on only a synchronous commit is safe."""
    conn.execute("CHECKPOINT")
    os.kill(number(conn, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"), signal.SIGSTOP)


def lose_a_claim(server: Server, before: Connection, order_key: OrderKey | None) -> tuple[Worker, ClaimedJob, Worker]:
    """Let a claim be forgotten, and another worker be given the job under the very same token."""
    zombie = Worker(before)
    # Tokens do not go on from a clock that is behind them.
    before.execute("SELECT setval('holdfast.token', 9000000000000000)")
    hold_back_the_log(before)
    enqueue(before, job(order_key=order_key))
    run_sync(before, register_worker("somebody else", queues=[], kinds=[]))  # everything before this is safe
    (lost,) = zombie.claim()
    after = crash(server, before)
    assert number(after, "SELECT status::text FROM holdfast.job WHERE id = %s", lost.id) == "pending"
    other = Worker(after)
    (again,) = other.claim()
    assert (again.id, again.token) == (lost.id, lost.token), "the trap is not there any more"
    zombie.conn = after
    return zombie, lost, other


@pytest.mark.parametrize("order_key", [None, OrderKey("a")], ids=["plain", "keyed"])
def test_a_token_issued_twice_does_not_help_the_old_holder(
    fragile: Server, before: Connection, order_key: OrderKey | None
) -> None:
    zombie, lost, other = lose_a_claim(fragile, before, order_key)
    with other.conn:
        assert rise(zombie.conn, zombie.id, lost) == refused(AbortReason.taken_by_another_worker)
        other.end([lost])
        assert rise(zombie.conn, zombie.id, lost) == refused(AbortReason.already_completed)


def test_without_the_workers_id_it_would(fragile: Server, before: Connection) -> None:
    zombie, lost, other = lose_a_claim(fragile, before, None)
    with other.conn, other.conn.transaction(force_rollback=True):
        open_trap(
            other.conn,
            "complete_jobs",
            ("tokens[1] AND j.locked_by = worker", "tokens[1]"),
            ("tokens[1]) AND j.locked_by = worker", "tokens[1])"),
        )
        deeds = {deed.write: deed for deed in rise(zombie.conn, zombie.id, lost)}
        assert "job" in deeds["complete_jobs"].changed


def test_a_workers_id_is_never_issued_twice(fragile: Server, before: Connection) -> None:
    hold_back_the_log(before)
    workers = [run_sync(before, register_worker("w", queues=[], kinds=[])) for _ in range(3)]
    with crash(fragile, before) as after:
        known = [worker for (worker,) in after.execute("SELECT id FROM holdfast.worker")]
        assert set(workers) <= set(known)
        assert run_sync(after, register_worker("w", queues=[], kinds=[])) not in known


def test_a_workers_id_would_be_if_it_were_not_waited_for(fragile: Server, before: Connection) -> None:
    hold_back_the_log(before)
    forgetful = "INSERT INTO holdfast.worker (name) VALUES ('w') RETURNING id"
    worker = number(before, forgetful)
    with crash(fragile, before) as after:
        assert number(after, forgetful) == worker
