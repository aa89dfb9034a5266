"""Jobs that were lost with their worker: the ordinary claim passes them by, and they run apart."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import OrderKey
from holdfast._drivers import run_sync
from holdfast._store.claim import claim_jobs
from holdfast._store.lease import isolate_worker, next_suspect
from holdfast._store.search import cancel_job
from tests.kit.workers import (
    COMPLETED,
    FAILURE,
    RELEASED,
    RESCHEDULED,
    RETRIED,
    Worker,
    enqueue,
    expire_leases,
    job,
    number,
    statuses,
)

if TYPE_CHECKING:
    from holdfast._model.outcome import Outcome
    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect


def lose(worker: Worker, jobs: list[ClaimedJob]) -> None:
    """Let the worker of these jobs die."""
    expire_leases(worker.conn, jobs)
    assert {lost.id for lost in worker.reap()} == {job.id for job in jobs}


def ordinary(worker: Worker) -> list[int]:
    claim = run_sync(worker.conn, claim_jobs(worker.id, dict.fromkeys(worker.queues, 100), worker.leases))
    return [job.id for job in claim.jobs]


def suspicion(worker: Worker) -> list[int | None]:
    return [value for (value,) in worker.conn.execute("SELECT suspect FROM holdfast.job ORDER BY id").fetchall()]


def test_what_was_lost_is_passed_by_and_taken_apart(connect: Connect) -> None:
    worker = Worker(connect())
    first, second, third = enqueue(worker.conn, job(), job(), job())
    lose(worker, worker.claim())
    fresh = enqueue(worker.conn, job())
    assert suspicion(worker) == [0, 0, 0, None]
    assert ordinary(worker) == fresh
    assert [taken.id for taken in worker.claim_suspects()] == [first], "one alone"
    assert [taken.id for taken in worker.claim_suspects(2)] == [second, third], "or some together"
    assert worker.claim_suspects() == []


def test_lost_again_among_suspects_no_attempt_counts_and_each_runs_alone(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job(max_attempts=2), job(max_attempts=2))
    lose(worker, worker.claim())
    lose(worker, worker.claim_suspects(2))
    assert suspicion(worker) == [1, 1]
    assert number(worker.conn, "SELECT max(attempt) FROM holdfast.job") == 1
    assert worker.claim_suspects(2) == [], "never together again"
    (alone,) = worker.claim_suspects()
    assert worker.end([alone]) == {alone.id: "completed"}


def test_lost_alone_it_is_the_culprit(connect: Connect) -> None:
    worker = Worker(connect())
    (culprit,) = enqueue(worker.conn, job(max_attempts=3))
    lose(worker, worker.claim())
    for _ in range(2):
        lose(worker, worker.claim_suspects())
    assert statuses(worker.conn) == {culprit: "failed"}
    reported = worker.conn.execute("SELECT last_error_code, last_error FROM holdfast.job_failed").fetchone()
    assert reported == ("crashed_alone", "the worker's process ended while this job ran alone, 2 times")
    codes = worker.conn.execute("SELECT error_code FROM holdfast.attempt ORDER BY attempt").fetchall()
    assert codes == [("lease_expired",), ("crashed_alone",), ("crashed_alone",)]

    again = number(worker.conn, "SELECT holdfast.replay_job(%s)", culprit)
    assert ordinary(worker) == [], "a person lets it run again: apart, from the first"
    assert [taken.id for taken in worker.claim_suspects()] == [again]


def test_one_whose_outcome_was_not_written_yet_is_not_the_culprit(connect: Connect) -> None:
    """Its handler had ended when its worker claimed the next: whichever of the two leases ends first."""
    worker = Worker(connect())
    innocent, culprit = enqueue(worker.conn, job(max_attempts=2), job(max_attempts=2))
    lose(worker, worker.claim())
    ran = worker.claim_suspects()
    killed = worker.claim_suspects()
    lose(worker, ran)
    assert number(worker.conn, "SELECT attempt FROM holdfast.job WHERE id = %s", innocent) == 1
    lose(worker, killed)
    assert statuses(worker.conn) == {innocent: "pending", culprit: "failed"}

    (third,) = enqueue(worker.conn, job(max_attempts=2))
    lose(worker, worker.claim())
    both = [*worker.claim_suspects(), *worker.claim_suspects()]
    lose(worker, both)
    assert statuses(worker.conn) == {innocent: "pending", culprit: "failed", third: "failed"}


@pytest.mark.parametrize(
    ("outcome", "left"), [(COMPLETED, []), (RETRIED, [None]), (RESCHEDULED, [None]), (RELEASED, [1])]
)
def test_a_suspect_that_ends_is_cleared(connect: Connect, outcome: Outcome, left: list[int | None]) -> None:
    """One that its worker gives back, as it stops, has not ended."""
    worker = Worker(connect())
    enqueue(worker.conn, job())
    lose(worker, worker.claim())
    worker.end(worker.claim_suspects(), outcome)
    assert suspicion(worker) == left


def test_at_most_once_stays_so(connect: Connect) -> None:
    worker = Worker(connect())
    (only,) = enqueue(worker.conn, job(max_attempts=1))
    lose(worker, worker.claim())
    assert statuses(worker.conn) == {only: "failed"}
    assert number(worker.conn, "SELECT last_error_code FROM holdfast.job_failed") == "lease_expired"


def test_the_most_urgent_first_and_nothing_of_paused_queues_or_other_kinds(connect: Connect) -> None:
    conn = connect()
    worker = Worker(conn, "k", "other", queues=("default", "paused"))
    late, urgent, *_ = enqueue(conn, job(priority=5), job(priority=1), job("other"), job(queue="paused"))
    lose(worker, worker.claim())
    conn.execute("INSERT INTO holdfast.queue (name, paused) VALUES ('paused', true)")
    one = Worker(conn, "k", queues=("default", "paused"))
    assert [taken.id for _ in range(3) for taken in one.claim_suspects()] == [urgent, late]
    assert run_sync(conn, next_suspect(["paused"], ["k"])) is None
    due = run_sync(conn, next_suspect(["default"], ["other"]))
    assert due is not None
    assert due <= 0


def test_the_head_of_an_order_key_holds_back_the_others(connect: Connect) -> None:
    worker = Worker(connect())
    first, second = enqueue(worker.conn, job(order_key=OrderKey("a")), job(order_key=OrderKey("a")))
    lose(worker, worker.claim())
    assert ordinary(worker) == []
    assert statuses(worker.conn) == {first: "pending", second: "blocked"}
    taken = worker.claim_suspects(10)
    assert [it.id for it in taken] == [first]
    worker.end(taken)
    assert ordinary(worker) == [second]


def test_a_suspect_behind_another_of_its_key_waits_its_turn(connect: Connect) -> None:
    worker = Worker(connect())
    first, second = enqueue(worker.conn, job(order_key=OrderKey("a")), job(order_key=OrderKey("a")))
    worker.conn.execute("UPDATE holdfast.job SET suspect = 0 WHERE id = %s", [second])
    assert worker.claim_suspects() == []
    assert statuses(worker.conn)[second] == "blocked"
    assert ordinary(worker) == [first]
    worker.conn.execute("UPDATE holdfast.job SET locked_until = now() - interval '1 minute' WHERE id = %s", [first])
    worker.reap()
    worker.end(worker.claim_suspects())
    assert [taken.id for taken in worker.claim_suspects()] == [second]


def test_a_suspect_can_be_called_off_and_expires(connect: Connect) -> None:
    worker = Worker(connect())
    called, expired = enqueue(worker.conn, job(), job(expires=timedelta(hours=1)))
    lose(worker, worker.claim())
    assert run_sync(worker.conn, cancel_job(called)) == "cancelled"
    worker.conn.execute("UPDATE holdfast.job SET expires_at = now() - interval '1 second'")
    (taken,) = worker.claim_suspects()
    assert (taken.id, taken.expired) == (expired, True)


def test_one_busy_worker_at_a_time_stops_for_suspects(connect: Connect) -> None:
    one, other = Worker(connect()), Worker(connect())

    def ask(worker: Worker, seconds: float) -> Any:
        return run_sync(worker.conn, isolate_worker(worker.id, seconds))

    assert [ask(one, 30), ask(other, 30), ask(one, 30)] == [True, False, True]
    one.conn.execute("UPDATE holdfast.worker SET alone_until = now() WHERE id = %s", [one.id])
    assert ask(other, 30), "who does not ask again has lost the turn"
    assert not ask(one, 30)
    ask(other, 0)
    assert ask(one, 30)


def test_the_failure_of_a_handler_is_no_crash(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job(max_attempts=9))
    worker.end(worker.claim(), RETRIED)
    assert suspicion(worker) == [None]
    assert number(worker.conn, "SELECT last_error_code FROM holdfast.job") == FAILURE.code
