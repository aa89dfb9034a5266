from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, cast

import pytest

from holdfast._drivers import run_sync
from holdfast._model.retry import Retry
from holdfast._store.lease import reap_jobs
from holdfast._store.search import cancel_job
from holdfast._store.worker import register_worker
from tests.kit.workers import Worker, enqueue, expire_leases, job, number, statuses

if TYPE_CHECKING:
    from datetime import datetime

    from tests.kit.workers import Connect

MINUTES = Retry(5, base=timedelta(minutes=1), factor=2, maximum=timedelta(hours=1), jitter=timedelta(0))


def test_only_leases_that_have_ended(connect: Connect) -> None:
    worker = Worker(connect())
    first, second = enqueue(worker.conn, job(), job())
    claimed = worker.claim()
    assert worker.reap() == []
    expire_leases(worker.conn, claimed[:1])
    (lost,) = worker.reap()
    assert (lost.id, lost.kind, lost.worker, lost.token, lost.attempt) == (first, "k", worker.id, claimed[0].token, 1)
    assert lost.answer == "pending"
    assert timedelta(seconds=1) <= lost.stale < timedelta(seconds=60)
    assert statuses(worker.conn) == {first: "pending", second: "processing"}
    assert number(worker.conn, "SELECT attempt FROM holdfast.job WHERE id = %s", first) == 1, "the attempt counts"
    row = worker.conn.execute(
        "SELECT a.outcome::text, a.error_code, a.worker_id, a.error LIKE 'worker ' || w.name || ' did not%' "
        "FROM holdfast.attempt a, holdfast.worker w"
    ).fetchall()
    assert row == [("lost", "lease_expired", worker.id, True)], "the worker is named"


@pytest.mark.parametrize(("attempt", "minutes"), [(1, 0), (2, 2), (3, 4), (4, 8)])
def test_the_delay_is_that_of_the_attempt(connect: Connect, attempt: int, minutes: int) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job(max_attempts=9))
    worker.claim()
    worker.conn.execute("UPDATE holdfast.job SET attempt = %s", [attempt])
    expire_leases(worker.conn)
    with worker.conn.transaction():
        worker.reap(MINUTES)
        waits = number(worker.conn, "SELECT available_at - now() FROM holdfast.job")
    assert timedelta(minutes=minutes) <= waits < timedelta(minutes=minutes, seconds=30)


def test_jitter_is_added(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, *[job() for _ in range(50)])
    worker.claim()
    worker.conn.execute("UPDATE holdfast.job SET attempt = 2")
    expire_leases(worker.conn)
    run_sync(worker.conn, reap_jobs({"k": MINUTES}, jitter=timedelta(seconds=10)))
    assert number(worker.conn, "SELECT count(DISTINCT available_at) FROM holdfast.job") > 10
    assert number(worker.conn, "SELECT max(available_at) - min(available_at) <= interval '10 s' FROM holdfast.job")


def test_a_job_that_kills_its_worker_every_time_ends_failed(connect: Connect) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job(max_attempts=3))
    answers = []
    for _ in range(3):
        assert len(worker.claim()) == 1
        expire_leases(worker.conn)
        answers += [lost.answer for lost in worker.reap()]
    assert answers == ["pending", "pending", "failed"]
    assert statuses(worker.conn) == {first: "failed"}
    assert worker.claim() == []
    assert number(worker.conn, "SELECT last_error_code FROM holdfast.job_failed") == "crashed_alone"


def test_a_job_asked_to_stop_ends_cancelled(connect: Connect) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job())
    worker.claim()
    run_sync(worker.conn, cancel_job(first))
    expire_leases(worker.conn)
    assert [lost.answer for lost in worker.reap()] == ["cancelled"]


def test_oldest_first_and_bounded(connect: Connect) -> None:
    worker = Worker(connect())
    ids = enqueue(worker.conn, *[job() for _ in range(10)])
    worker.claim()
    worker.conn.execute("UPDATE holdfast.job SET locked_until = now() - id * interval '1 minute'")
    reaped = [[lost.id for lost in worker.reap(limit=4)] for _ in range(4)]
    assert reaped == [ids[:5:-1], ids[5:1:-1], ids[1::-1], []]


def test_only_the_kinds_served_or_all(connect: Connect) -> None:
    conn = connect()
    worker = Worker(conn, "mine", "other")
    mine, other = enqueue(conn, job("mine"), job("other"))
    worker.claim()
    conn.execute("UPDATE holdfast.job SET attempt = 2")
    expire_leases(conn)
    assert [lost.id for lost in run_sync(conn, reap_jobs({"mine": MINUTES})).jobs] == [mine]
    with conn.transaction():
        assert [lost.id for lost in run_sync(conn, reap_jobs({"mine": MINUTES}, others=True)).jobs] == [other]
        waits = number(conn, "SELECT available_at - now() FROM holdfast.job WHERE id = %s", other)
    assert waits >= Retry().delay(2), "a kind nobody described waits by the default"


def test_a_locked_row_is_left_to_the_next_pass(connect: Connect) -> None:
    worker, handler = Worker(connect()), connect()
    first, second = enqueue(worker.conn, job(), job())
    worker.claim()
    expire_leases(worker.conn)
    with handler.transaction():
        handler.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [first])
        assert [lost.id for lost in worker.reap()] == [second]
    assert [lost.id for lost in worker.reap()] == [first]


def test_since_leaves_what_ended_before(connect: Connect) -> None:
    worker = Worker(connect())
    early, late = enqueue(worker.conn, job(), job())
    worker.claim()
    worker.conn.execute(
        "UPDATE holdfast.job SET locked_until = now() - CASE WHEN id = %s THEN interval '1 hour' "
        "ELSE interval '1 second' END",
        [early],
    )
    since = number(worker.conn, "SELECT now() - interval '1 minute'").isoformat()
    assert [lost.id for lost in worker.reap(since=since)] == [late]
    assert [lost.id for lost in worker.reap()] == [early]


def test_two_reapers_share_the_work(connect: Connect) -> None:
    one, other = Worker(connect()), Worker(connect())
    enqueue(one.conn, *[job() for _ in range(10)])
    one.claim()
    expire_leases(one.conn)
    with one.conn.transaction():
        first = {lost.id for lost in one.reap(limit=5)}
        second = {lost.id for lost in other.reap()}
    assert (len(first), len(second), first & second) == (5, 5, set())


def test_a_pass_leaves_its_time_in_the_row_of_its_worker(connect: Connect) -> None:
    conn = connect()
    worker = run_sync(conn, register_worker("w", queues=[], kinds=[]))

    def reaped_at() -> datetime | None:
        row = conn.execute("SELECT reaped_at FROM holdfast.worker").fetchone()
        assert row is not None
        return cast("datetime | None", row[0])

    first = run_sync(conn, reap_jobs({}, worker=worker, record_every=60.0))
    assert (first.at, first.jobs) == (reaped_at(), [])
    second = run_sync(conn, reap_jobs({}, worker=worker, record_every=60.0))
    assert second.at > first.at
    assert reaped_at() == first.at, "not again within the minute"
    third = run_sync(conn, reap_jobs({}, worker=worker))
    assert reaped_at() == third.at
