from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast._drivers import run_sync
from holdfast._model.new_job import OrderKey
from holdfast._store.lease import ClaimAnswer
from holdfast._store.search import cancel_job, replay_job
from tests.kit.workers import CANCELLED, FAILED, Worker, drain, enqueue, job, number, statuses

if TYPE_CHECKING:
    from tests.kit.workers import Connect


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(days=1)])
def test_a_waiting_job_ends_at_once(connect: Connect, delay: timedelta) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job(payload='{"n":1}', delay=delay))
    assert run_sync(worker.conn, cancel_job(first)) == "cancelled"
    assert statuses(worker.conn) == {first: "cancelled"}
    row = worker.conn.execute("SELECT payload::text, last_error_code, worker_id FROM holdfast.job_history").fetchall()
    assert row == [('{"n":1}', "cancelled", None)]
    assert worker.claim() == []
    assert run_sync(worker.conn, cancel_job(first)) == "not_found"


def test_a_running_job_is_asked(connect: Connect) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job())
    claimed = worker.claim()
    assert run_sync(worker.conn, cancel_job(first)) == "requested"
    assert statuses(worker.conn) == {first: "processing"}
    assert worker.renew(claimed) == {first: ClaimAnswer.cancelled}
    assert worker.end(claimed, CANCELLED) == {first: "cancelled"}


def test_a_running_job_may_still_complete(connect: Connect) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job())
    claimed = worker.claim()
    run_sync(worker.conn, cancel_job(first))
    assert worker.end(claimed) == {first: "completed"}


def test_it_belongs_to_the_callers_transaction(connect: Connect) -> None:
    worker, user = Worker(connect()), connect()
    (first,) = enqueue(user, job())
    with user.transaction(force_rollback=True):
        assert run_sync(user, cancel_job(first)) == "cancelled"
        assert worker.claim() == [], "nobody starts what may be called off"
    assert [claimed.id for claimed in worker.claim()] == [first]


def test_a_job_that_never_was(connect: Connect) -> None:
    assert run_sync(connect(), cancel_job(4711)) == "not_found"


def test_a_dead_letter_runs_again_as_a_new_job(connect: Connect) -> None:
    worker = Worker(connect(), queues=["q"])
    (first,) = enqueue(worker.conn, job(payload='{"a":1}', queue="q", priority=2, headers={"h": "v"}, max_attempts=4))
    worker.end(worker.claim(), FAILED)
    again = run_sync(worker.conn, replay_job(first))
    assert again is not None
    row = worker.conn.execute(
        "SELECT id, replay_of, payload::text, queue, priority, headers::text, max_attempts, attempt, last_error "
        "FROM holdfast.job"
    ).fetchall()
    assert row == [(again, first, '{"a":1}', "q", 2, '{"h":"v"}', 4, 0, None)]
    assert drain(worker) == [again]
    assert statuses(worker.conn) == {first: "failed", again: "completed"}, "the dead letter stays"
    assert number(worker.conn, "SELECT replay_of FROM holdfast.job_history") == first


def test_only_dead_letters_are_replayed(connect: Connect) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job())
    assert run_sync(worker.conn, replay_job(first)) is None
    worker.end(worker.claim())
    assert run_sync(worker.conn, replay_job(first)) is None


def test_a_replay_takes_its_old_place(connect: Connect) -> None:
    worker = Worker(connect())
    first, second, third = enqueue(worker.conn, *[job(order_key=OrderKey("a")) for _ in range(3)])
    worker.end(worker.claim(), FAILED)
    running = worker.claim()
    assert [claimed.id for claimed in running] == [second]
    again = run_sync(worker.conn, replay_job(first))
    assert worker.claim() == [], "one of the key runs"
    worker.end(running)
    assert set(drain(worker)) == {again, third}
    places = dict(worker.conn.execute("SELECT id, order_seq FROM holdfast.job_history").fetchall())
    assert places == {second: second, again: first, third: third}
