from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from holdfast._drivers import run_sync
from holdfast._store.worker import beat_worker, read_queues, register_worker, stop_worker
from tests.kit.mutation import open_trap
from tests.kit.workers import number

if TYPE_CHECKING:
    from tests.kit.workers import Connect


def test_what_a_worker_says_of_itself(connect: Connect) -> None:
    conn = connect()
    worker = run_sync(conn, register_worker("w", queues=["a", 'b"'], kinds=["k"]))
    row = conn.execute("SELECT id, name, host, pid, queues, kinds, stopped_at FROM holdfast.worker").fetchall()
    assert row == [(worker, "w", socket.gethostname(), os.getpid(), ["a", 'b"'], ["k"], None)]


def test_every_start_is_a_new_worker(connect: Connect) -> None:
    conn = connect()
    first, second = (run_sync(conn, register_worker("w", queues=[], kinds=[])) for _ in range(2))
    assert second > first


def test_the_registration_is_durable_whatever_the_session_prefers(connect: Connect) -> None:
    """Half of every fence: an id that a crash could roll back would be given to another worker."""
    conn = connect()

    def in_its_transaction() -> str:
        conn.execute("SET synchronous_commit = off")
        with conn.transaction():
            run_sync(conn, register_worker("w", queues=[], kinds=[]))
            setting: str = number(conn, "SELECT current_setting('synchronous_commit')")
        assert number(conn, "SHOW synchronous_commit") == "off", "the session keeps its own"
        return setting

    assert in_its_transaction() == "on"
    open_trap(conn, "register_worker", ("PERFORM set_config('synchronous_commit', 'on', true);", ""))
    assert in_its_transaction() == "off"


def test_how_a_worker_ended_is_written_once(connect: Connect) -> None:
    conn = connect()
    worker = run_sync(conn, register_worker("w", queues=[], kinds=[]))
    run_sync(conn, stop_worker(worker, "SIGTERM"))
    run_sync(conn, stop_worker(worker, "again"))
    row = conn.execute("SELECT stop_reason, stopped_at >= started_at FROM holdfast.worker").fetchone()
    assert row == ("SIGTERM", True)


def test_a_beat_is_seen_and_missed(connect: Connect) -> None:
    conn = connect()
    worker = run_sync(conn, register_worker("w", queues=[], kinds=[]))
    conn.execute("UPDATE holdfast.worker SET heartbeat_at = now() - interval '1 hour'")
    assert run_sync(conn, beat_worker(worker, {"completed": 3})).own is True
    row = conn.execute(
        "SELECT heartbeat_at > now() - interval '1 minute', counters ->> 'completed' FROM holdfast.worker"
    ).fetchone()
    assert row == (True, "3")
    conn.execute("DELETE FROM holdfast.worker")
    assert run_sync(conn, beat_worker(worker, {})).own is False


def test_the_control_table_is_read_as_it_is(connect: Connect) -> None:
    conn = connect()
    assert run_sync(conn, read_queues()) == []
    conn.execute(
        "INSERT INTO holdfast.queue (name, paused, concurrency, lease_ms, rate) "
        "VALUES ('b', true, 2, 5000, 1.5), ('a', false, NULL, NULL, NULL)"
    )
    rows = [("a", False, None, None, None), ("b", True, 2, 5000, 1.5)]
    assert run_sync(conn, read_queues()) == rows
    assert run_sync(conn, beat_worker(1, {})).queues == rows, "a heartbeat returns it as well"


def test_a_beat_returns_the_place_among_live_workers_of_the_same_kinds(connect: Connect) -> None:
    conn = connect()
    first, other, silent, second, stopped = [
        run_sync(conn, register_worker("w", queues=[], kinds=kinds))
        for kinds in (["a"], ["a", "b"], ["a"], ["a"], ["a"])
    ]
    conn.execute("UPDATE holdfast.worker SET heartbeat_at = now() - interval '3 seconds' WHERE id = %s", [silent])
    run_sync(conn, stop_worker(stopped, "SIGTERM"))

    def place(worker: int) -> tuple[int, int]:
        beat = run_sync(conn, beat_worker(worker, {}, live_seconds=2.0))
        return beat.place, beat.peers

    assert place(first) == (0, 2)
    assert place(second) == (1, 2)
    assert place(other) == (0, 1)
    assert place(silent) == (1, 3), "it lives again"
    assert place(second) == (2, 3)
