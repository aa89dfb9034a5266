"""PROTOCOL, sections 6 to 8: finishing, renewing and the handler's own transaction never wait for each other."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._store.finish import Ending, finish_jobs
from holdfast._store.lease import ClaimAnswer
from tests.kit.mutation import open_trap
from tests.kit.plans import explained
from tests.kit.sessions import await_waiting, background
from tests.kit.workers import (
    CANCELLED,
    COMPLETED,
    FAILED,
    RELEASED,
    RESCHEDULED,
    RETRIED,
    Worker,
    enqueue,
    fill,
    job,
    number,
    statuses,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from holdfast._model.outcome import Outcome
    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect


def lock(conn: psycopg.Connection[Any], claimed: ClaimedJob) -> None:
    """Lock the job's row, as a handler's own transaction may."""
    conn.execute("BEGIN")
    conn.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [claimed.id])


def test_a_locked_row_is_busy_and_the_others_are_done(connect: Connect) -> None:
    conn, handler = connect(), connect()
    worker = Worker(conn)
    ids = enqueue(conn, job(), job(), job())
    claimed = worker.claim()
    lock(handler, claimed[0])
    conn.execute("SET lock_timeout = '5s'")
    assert worker.end(claimed, careful=True) == {ids[0]: "busy", ids[1]: "completed", ids[2]: "completed"}
    handler.execute("ROLLBACK")
    assert worker.end(claimed[:1], careful=True) == {ids[0]: "completed"}

    enqueue(conn, job())
    claimed = worker.claim()
    lock(handler, claimed[0])
    open_trap(conn, "settle_batch", ("ORDER BY j.id FOR UPDATE OF j SKIP LOCKED)", "ORDER BY j.id FOR UPDATE OF j)"))
    conn.execute("SET lock_timeout = '200ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        worker.end(claimed, careful=True)


DEADLOCK_TIMEOUT = "SELECT extract(epoch FROM current_setting('deadlock_timeout')::interval)::float"


def given_up(worker: Worker, claimed: list[ClaimedJob]) -> float:
    """Return after how many seconds a locked row ended the statement."""
    began = time.monotonic()
    with pytest.raises(psycopg.errors.LockNotAvailable):
        worker.end(claimed)
    return time.monotonic() - began


def test_the_short_way_gives_up_soon(connect: Connect) -> None:
    conn, handler = connect(), connect()
    worker = Worker(conn)
    enqueue(conn, job(), job())
    claimed = worker.claim()
    lock(handler, claimed[0])
    assert 0.1 <= min(given_up(worker, claimed) for _ in range(4)) < number(conn, DEADLOCK_TIMEOUT)
    assert set(statuses(conn).values()) == {"processing"}, "all or nothing"
    assert number(conn, "SHOW lock_timeout") == "0", "nothing stays in the session"

    open_trap(conn, "complete_jobs", (" SET lock_timeout TO '100ms'\n", ""))
    with background(lambda: worker.end(claimed)) as finish:
        try:
            await_waiting(handler, conn.info.backend_pid)
            assert not finish.done()
        finally:
            handler.execute("ROLLBACK")
        assert set(finish.result(timeout=30).values()) == {"completed"}


@pytest.mark.parametrize("careful", [False, True])
def test_finished_twice(connect: Connect, careful: bool) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job(), job())
    claimed = worker.claim()
    assert set(worker.end(claimed).values()) == {"completed"}
    assert set(worker.end(claimed, careful=careful).values()) == {ClaimAnswer.already_completed}
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job_history") == 2


def test_a_mixed_batch_is_one_call(connect: Connect) -> None:
    """However jobs end, one statement goes to the server; and a plain batch never enters the long way."""
    conn = connect()
    worker = Worker(conn)
    outcomes: list[Outcome] = [COMPLETED, RETRIED, RESCHEDULED, RELEASED, FAILED, CANCELLED]
    ids = enqueue(conn, *[job() for _ in outcomes], job(order_key="a"))
    claimed = worker.claim()
    endings = [Ending(taken, how) for taken, how in zip(claimed, [*outcomes, COMPLETED], strict=True)]
    with explained(conn) as plans:
        answers = run_sync(conn, finish_jobs(worker.id, endings))
    became = ["completed", "pending", "pending", "pending", "failed", "cancelled", "completed"]
    assert {held.id: answer for held, answer in answers.items()} == dict(zip(ids[1:], became[1:], strict=True))
    assert sum(", answer FROM holdfast.finish_jobs(" in plan for plan in plans) == 1
    assert sum("DELETE FROM holdfast.job j" in plan for plan in plans) == 2

    plain = worker.claim()
    with explained(conn) as plans:
        worker.end(plain)
    writing = [plan for plan in plans if "DELETE FROM" in plan or "INSERT INTO" in plan or "UPDATE " in plan]
    assert len(writing) == 1, "a plain batch is finished by a single statement"
    assert not any("settle_jobs" in plan for plan in plans)


def test_the_heartbeat_beside_the_handlers_own_transaction(connect: Connect) -> None:
    conn, handler = connect(), connect()
    worker = Worker(conn)
    enqueue(conn, job(), job())
    claimed = worker.claim()
    before = dict(conn.execute("SELECT id, locked_until FROM holdfast.job").fetchall())
    lock(handler, claimed[0])
    conn.execute("SET lock_timeout = '5s'")
    assert worker.renew(claimed) == {claimed[0].id: "busy"}
    after = dict(conn.execute("SELECT id, locked_until FROM holdfast.job").fetchall())
    assert after[claimed[0].id] == before[claimed[0].id]
    assert after[claimed[1].id] > before[claimed[1].id]

    open_trap(conn, "renew_leases", ("FOR NO KEY UPDATE OF j SKIP LOCKED", "FOR NO KEY UPDATE OF j"))
    conn.execute("SET lock_timeout = '200ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        worker.renew(claimed)


def test_the_fence_of_a_repeatable_read_transaction_fails_after_a_heartbeat(connect: Connect) -> None:
    conn, handler = connect(), connect()
    worker = Worker(conn)
    enqueue(conn, job())
    claimed = worker.claim()

    def complete_in(level: str) -> object:
        handler.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
        handler.execute("SELECT count(*) FROM holdfast.queue")
        assert worker.renew(claimed) == {}
        statement = finish_jobs(worker.id, [Ending(taken, COMPLETED) for taken in claimed])
        try:
            lost = run_sync(handler, statement)
        except psycopg.Error:
            handler.execute("ROLLBACK")
            raise
        handler.execute("COMMIT")
        return lost

    with pytest.raises(psycopg.errors.SerializationFailure, match="could not serialize access"):
        complete_in("REPEATABLE READ")
    assert complete_in("READ COMMITTED") == {}
    assert set(statuses(conn).values()) == {"completed"}


def test_heartbeat_and_finish_cross_without_a_deadlock(connect: Connect) -> None:
    rounds, jobs = 40, 100
    heart, hand, other = connect(), connect(), connect()
    worker = Worker(hand)
    beating = Worker(heart)
    beating.id = worker.id
    careful = Worker(other)
    careful.id = worker.id
    fill(hand, rounds * jobs)
    with ThreadPoolExecutor(3) as pool:
        for _ in range(rounds):
            claimed = worker.claim(jobs)
            assert len(claimed) == jobs
            backwards = claimed[::-1]
            calls: list[Future[Any]] = [
                pool.submit(beating.renew, backwards),
                pool.submit(careful.end, claimed[::2], RETRIED),
                pool.submit(worker.end, backwards),
                pool.submit(beating.renew, claimed),
            ]
            for call in calls:
                try:
                    call.result(timeout=30)
                except psycopg.errors.LockNotAvailable:
                    continue  # the short way gave up; never DeadlockDetected
            worker.end(claimed, careful=True)
            hand.execute("UPDATE holdfast.job SET available_at = now() + interval '1 day' WHERE attempt > 0")
    # The trap: two statements that each wait for what the other has locked.
    first, second = enqueue(hand, job(queue="x"), job(queue="x"))
    renew = "UPDATE holdfast.job SET locked_until = now() WHERE id = %s"
    heart.execute("BEGIN")
    other.execute("BEGIN")
    heart.execute(renew, [first])
    other.execute("DELETE FROM holdfast.job WHERE id = %s", [second])
    with background(lambda: heart.execute(renew.encode(), [second])) as wait:
        await_waiting(hand, heart.info.backend_pid)
        victim: BaseException | None = None
        try:
            other.execute("DELETE FROM holdfast.job WHERE id = %s", [first])
        except psycopg.errors.DeadlockDetected as deadlock:
            victim = deadlock
        other.execute("ROLLBACK")
        victim = victim or wait.exception(timeout=30)
    assert isinstance(victim, psycopg.errors.DeadlockDetected)
