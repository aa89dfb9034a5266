from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._drivers import run_sync
from holdfast._model.new_job import OrderKey
from holdfast._store.claim import claim_jobs
from holdfast._store.search import resume_order_key
from tests.kit.workers import FAILED, RELEASED, Worker, drain, enqueue, fill, job, number, statuses

if TYPE_CHECKING:
    from tests.kit.workers import Connect


def test_one_at_a_time_in_the_order_enqueued(connect: Connect) -> None:
    worker = Worker(connect())
    ids = enqueue(worker.conn, *[job(order_key="a") for _ in range(5)])
    for expected in ids:
        (claimed,) = worker.claim()
        assert claimed.id == expected
        assert worker.claim() == []
        worker.end([claimed])


def test_other_keys_and_jobs_without_run_past(connect: Connect) -> None:
    worker = Worker(connect())
    ids = enqueue(worker.conn, *[job(order_key=key) for key in ("a", "a", "b", None, "b", None, "c")])
    assert {claimed.id for claimed in worker.claim()} == {ids[0], ids[2], ids[3], ids[5], ids[6]}


def test_order_goes_before_priority_and_time_within_a_key(connect: Connect) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job(order_key="a", priority=9))
    (second,) = enqueue(worker.conn, job(order_key="a", priority=0))
    worker.conn.execute(
        "UPDATE holdfast.job SET available_at = available_at - interval '1 hour' WHERE id = %s", [second]
    )
    assert drain(worker) == [first, second]


def test_a_key_spans_queues_and_kinds(connect: Connect) -> None:
    worker = Worker(connect(), "k", "m", queues=["p", "q"])
    ids = enqueue(
        worker.conn,
        *[job(kind, order_key="a", queue=queue) for kind, queue in (("m", "q"), ("k", "p"), ("k", "q"), ("m", "p"))],
    )
    assert drain(worker) == ids


def test_a_key_whose_head_is_not_served_here_waits(connect: Connect) -> None:
    worker, other = Worker(connect(), "k"), Worker(connect(), "m")
    first, second = enqueue(worker.conn, job("m", order_key="a"), job("k", order_key="a"))
    assert worker.claim() == []
    other.end(other.claim())
    assert [claimed.id for claimed in worker.claim()] == [second]
    assert statuses(worker.conn)[first] == "completed"


def test_when_the_head_fails_the_next_goes_on(connect: Connect) -> None:
    worker = Worker(connect())
    ids = enqueue(worker.conn, *[job(order_key=OrderKey("a", on_failure="next")) for _ in range(3)])
    worker.end(worker.claim(), FAILED)
    assert drain(worker) == ids[1:]


def test_when_the_head_fails_the_key_stops(connect: Connect) -> None:
    worker = Worker(connect())
    ids = enqueue(worker.conn, *[job(order_key=OrderKey("a", on_failure="block")) for _ in range(3)])
    others = enqueue(worker.conn, job(order_key="b"))
    heads = {claimed.id: claimed for claimed in worker.claim()}
    worker.end([heads[ids[0]]], FAILED)
    worker.end([heads[others[0]]])
    assert worker.conn.execute("SELECT order_key, job_id FROM holdfast.order_stop").fetchall() == [("a", ids[0])]
    assert drain(worker) == []
    assert run_sync(worker.conn, resume_order_key("a"))
    assert drain(worker) == ids[1:]
    assert number(worker.conn, "SELECT count(*) FROM holdfast.order_stop") == 0


def test_a_released_head_keeps_its_place(connect: Connect) -> None:
    worker = Worker(connect())
    ids = enqueue(worker.conn, *[job(order_key="a") for _ in range(3)])
    for _ in range(3):
        (head,) = worker.claim()
        assert head.id == ids[0]
        worker.end([head], RELEASED)
    assert drain(worker) == ids


def test_jobs_that_commit_later_have_their_place_by_id(connect: Connect) -> None:
    worker, user = Worker(connect()), connect()
    with user.transaction():
        (lower,) = enqueue(user, job(order_key="a"))
        higher, last = enqueue(worker.conn, job(order_key="a"), job(order_key="a"))
        running = worker.claim()
        assert [claimed.id for claimed in running] == [higher]
    worker.end(running)
    assert drain(worker) == [lower, last]


def test_a_claim_says_when_it_spent_its_time_on_parking(connect: Connect) -> None:
    """However few the slots, in the end what waits behind a hot key is found, and no call takes long."""
    worker = Worker(connect())
    fill(worker.conn, 3_000, order_key="'hot'", order_seq="n")
    fill(worker.conn, 1, available_at="now() - interval '1 second'")
    found: list[str | None] = []
    for _ in range(50):
        claim = run_sync(worker.conn, claim_jobs(worker.id, {"default": 2}, worker.leases))
        found += [claimed.order_key for claimed in claim.jobs]
        if not claim.again:
            break
    assert sorted(found, key=str) == [None, "hot"]


def test_two_keys_with_the_same_hash_only_wait_for_each_other(connect: Connect) -> None:
    """Locks are taken by a hash of 32 bits: a clash may delay a key, never break it."""
    conn = connect()
    clash = conn.execute(
        "SELECT min(n), max(n) FROM generate_series(1, 200000) AS n "
        "GROUP BY hashtext('key ' || n) HAVING count(*) > 1 LIMIT 1"
    ).fetchone()
    assert clash is not None, "among 200,000 keys some share a hash"
    worker = Worker(conn)
    ids = enqueue(conn, *[job(order_key=f"key {n}") for n in (*clash, *clash)])
    assert sorted(drain(worker)) == ids
