"""Problems of order keys that the machine found, each as a test of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast._drivers import run_sync
from holdfast._model.new_job import OrderKey
from holdfast._store.search import replay_job
from tests.kit.workers import FAILED, RETRIED, Worker, drain, enqueue, expire_leases, job, statuses

if TYPE_CHECKING:
    from tests.kit.workers import Connect


@pytest.fixture
def worker(connect: Connect) -> Worker:
    return Worker(connect())


@pytest.mark.parametrize("policy", ["next", "block"])
def test_a_dead_letter_replayed_twice_takes_one_place_after_the_other(worker: Worker, policy: str) -> None:
    order_key = OrderKey("a", on_failure="block" if policy == "block" else "next")
    dead, later = enqueue(worker.conn, *[job(order_key=order_key) for _ in range(2)])
    worker.end(worker.claim(1), FAILED)
    first, second = (run_sync(worker.conn, replay_job(dead, again=True)) for _ in range(2))
    assert drain(worker) == [first, second, later]


def test_a_job_behind_its_key_does_not_cost_a_slot(worker: Worker) -> None:
    enqueue(worker.conn, job(order_key=OrderKey("a")))
    (head,) = worker.claim()
    behind, urgent = enqueue(worker.conn, job(order_key=OrderKey("a"), priority=0), job(priority=0))
    enqueue(worker.conn, job(priority=9))
    assert [claimed.id for claimed in worker.claim(1)] == [urgent]
    assert statuses(worker.conn)[behind] == "blocked"
    worker.end([head])


def test_a_job_that_kills_every_worker_ends_as_failed(connect: Connect) -> None:
    conn = connect()
    (killer,) = enqueue(conn, job(max_attempts=3))
    for attempt in (1, 2, 3):
        victim = Worker(conn)
        assert [(claimed.id, claimed.attempt) for claimed in victim.claim()] == [(killer, attempt)]
        expire_leases(conn)
        Worker(conn).reap()
    assert statuses(conn) == {killer: "failed"}
    assert Worker(conn).claim() == []


def test_a_locked_key_does_not_hide_later_jobs(worker: Worker, connect: Connect) -> None:
    """A session that keeps a key's lock for long, for instance a resume that is not committed, costs only that key."""
    keyed = enqueue(worker.conn, *[job(order_key=OrderKey("a")) for _ in range(3)])
    (plain,) = enqueue(worker.conn, job())
    other = connect()
    other.execute("BEGIN")
    other.execute("SELECT holdfast.resume_order_key('a')")
    assert [claimed.id for claimed in worker.claim(1)] == [plain]
    other.execute("ROLLBACK")
    assert [claimed.id for claimed in worker.claim(1)] == keyed[:1]


def test_a_retried_head_keeps_its_place(worker: Worker) -> None:
    ids = enqueue(worker.conn, *[job(order_key=OrderKey("a")) for _ in range(3)])
    worker.end(worker.claim(), RETRIED)
    assert drain(worker) == ids
