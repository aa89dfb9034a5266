from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast._drivers import run_sync
from holdfast._store.sleeper import RECORD_SECONDS, end_sleep, look_ahead, others_ended, record_sleep, worker_channel
from tests.kit.workers import Worker, enqueue, job, number

if TYPE_CHECKING:
    from psycopg import Connection

    from tests.kit.workers import Connect


def test_a_sleeper_is_a_row_per_queue_that_ends_by_itself(connect: Connect) -> None:
    worker = Worker(connect(), "k", "m", queues=["p", "q"])
    run_sync(worker.conn, record_sleep(worker.id, worker.queues, worker.leases))
    rows = worker.conn.execute(
        "SELECT queue, kinds, worker_id, until <= clock_timestamp() + %s * interval '1 second' "
        "FROM holdfast.sleeper ORDER BY 1",
        [RECORD_SECONDS],
    ).fetchall()
    assert rows == [(queue, ["k", "m"], worker.id, True) for queue in ("p", "q")]
    assert RECORD_SECONDS <= 10
    run_sync(worker.conn, end_sleep(worker.id))
    assert number(worker.conn, "SELECT count(*) FROM holdfast.sleeper") == 0


def test_a_sleeper_is_notified_by_name(connect: Connect) -> None:
    worker = Worker(connect())
    worker.conn.execute(f"LISTEN {worker_channel(worker.id)}".encode())
    run_sync(worker.conn, record_sleep(worker.id, worker.queues, worker.leases))
    enqueue(connect(), job())
    worker.conn.execute("SELECT 1")
    assert [note.payload for note in worker.conn.notifies(timeout=5, stop_after=1)] == ["default"]


def test_a_single_job_is_named_to_one_sleeper_and_left_to_another(connect: Connect) -> None:
    conn, listening = connect(), connect()
    for worker in (7, 8, 9):
        listening.execute(f"LISTEN holdfast_{worker}".encode())
        run_sync(conn, record_sleep(worker, ["default"], ["k"]))

    def notes(**options: object) -> set[tuple[str, str]]:
        made = number(
            conn, f"SELECT holdfast.enqueue('k'{''.join(f', {name} => {value}' for name, value in options.items())})"
        )
        received = {(note.channel, note.payload) for note in listening.notifies(timeout=5, stop_after=2)}
        return {(channel, payload.replace(str(made), "ID")) for channel, payload in received}

    assert notes() == {("holdfast_9", "job ID"), ("holdfast_8", "late ID")}
    for options in ({"delay": "'1 hour'"}, {"order_key": "'a'"}):
        assert notes(**options) == {("holdfast_9", "default"), ("holdfast_8", "default")}, (
            "nothing to claim by its name"
        )
    with conn.transaction():
        conn.execute("SET LOCAL holdfast.notify = off")
        number(conn, "SELECT holdfast.enqueue('k')")
    assert list(listening.notifies(timeout=0)) == []


def test_until_the_next_job_is_due(connect: Connect) -> None:
    worker = Worker(connect(), "k", "m", queues=["default", "q"])

    def ahead() -> timedelta | None:
        return run_sync(worker.conn, look_ahead(worker.id)).next_due

    assert ahead() is None
    enqueue(worker.conn, job("other", delay=timedelta(minutes=1)), job("k", queue="other", delay=timedelta(minutes=1)))
    assert ahead() is None
    enqueue(worker.conn, job("m", delay=timedelta(hours=1), priority=0), job("k", delay=timedelta(hours=2), queue="q"))
    soon = ahead()
    assert soon is not None
    assert timedelta(minutes=59) < soon <= timedelta(hours=1)


def begin(conn: Connection[object]) -> None:
    """Begin a transaction that has written."""
    conn.execute("BEGIN")
    conn.execute("SELECT pg_current_xact_id()")


def test_sleep_is_light_until_transactions_that_missed_the_record_end(connect: Connect) -> None:
    worker, before, after = Worker(connect()), connect(), connect()
    begin(before)
    run_sync(worker.conn, record_sleep(worker.id, worker.queues, worker.leases))
    horizon = run_sync(worker.conn, look_ahead(worker.id))
    assert not run_sync(worker.conn, others_ended(horizon.xmax))
    begin(after)
    before.execute("COMMIT")
    assert run_sync(worker.conn, others_ended(horizon.xmax)), "who began later has seen the record"
    after.execute("COMMIT")
    assert run_sync(worker.conn, others_ended(horizon.xmax))


def test_the_record_of_a_killed_worker_does_not_swallow_a_wake_up(connect: Connect) -> None:
    """Two workers are woken, however many records each has, and no more than two."""
    conn, listening = connect(), connect()
    for worker in (7, 8, 9):
        listening.execute(f"LISTEN holdfast_{worker}".encode())
    for worker in (9, 7, 8, 8):  # 8 lies down last, twice, and is killed
        run_sync(conn, record_sleep(worker, ["default"], ["k"]))
    enqueue(conn, job())
    woken = {received.channel for received in listening.notifies(timeout=5, stop_after=2)}
    assert woken == {"holdfast_7", "holdfast_8"}
    assert list(listening.notifies(timeout=0)) == []
