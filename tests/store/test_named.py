"""A name is a hint: a job is claimed by it only where the worker may claim it anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast._drivers import run_sync
from holdfast._store.claim import Shards
from holdfast._store.plain import claim_named
from tests.kit.workers import Worker, enqueue, job, number, statuses

if TYPE_CHECKING:
    from tests.kit.workers import Connect

NOT_PLAIN = {
    "another queue": "queue = 'other'",
    "another kind": "kind = 'other'",
    "not due": "available_at = now() + interval '1 hour'",
    "scheduled": "later = true",
    "with a limit": "limits = '{one}'",
    "with an order key": "order_key = 'a', order_seq = id",
    "suspect": "suspect = 0",
    "blocked": "status = 'blocked'",
    "running": "status = 'processing', locked_by = 7, lock_token = 7, locked_until = now() + interval '1 hour'",
}


@pytest.mark.parametrize("case", NOT_PLAIN)
def test_a_name_is_not_trusted(connect: Connect, case: str) -> None:
    worker = Worker(connect())
    named, plain = enqueue(worker.conn, job(), job())
    before = worker.conn.execute(f"UPDATE holdfast.job SET {NOT_PLAIN[case]} WHERE id = {named} RETURNING *".encode())
    row = before.fetchone()
    claimed = run_sync(worker.conn, claim_named(worker.id, [named, plain, 10**17], worker.queues, worker.leases))
    assert [one.id for one in claimed] == [plain]
    assert worker.conn.execute("SELECT * FROM holdfast.job WHERE id = %s", [named]).fetchone() == row


def test_a_paused_queue_and_another_shard_are_left_alone(connect: Connect) -> None:
    worker = Worker(connect())
    [named] = enqueue(worker.conn, job())
    other = Shards(0, 2) if named & 63 >= 32 else Shards(1, 2)
    assert run_sync(worker.conn, claim_named(worker.id, [named], worker.queues, worker.leases, other)) == []
    worker.conn.execute("INSERT INTO holdfast.queue (name, paused) VALUES ('default', true)")
    assert run_sync(worker.conn, claim_named(worker.id, [named], worker.queues, worker.leases)) == []
    worker.conn.execute("DELETE FROM holdfast.queue")
    [claimed] = run_sync(worker.conn, claim_named(worker.id, [named], worker.queues, worker.leases))
    assert worker.end([claimed]) == {named: "completed"}


def test_a_claim_by_name_returns_what_any_claim_does(connect: Connect) -> None:
    worker = Worker(connect())
    ids = enqueue(worker.conn, job(), job())
    worker.conn.execute("UPDATE holdfast.job SET expires_at = now(), headers = '{\"a\": 1}', attempt = 2")
    [one] = run_sync(worker.conn, claim_named(worker.id, ids[:1], worker.queues, worker.leases))
    [other] = worker.claim()
    assert one.expired
    different = {"id", "token", "available_at", "chain_id", "created", "waited"}
    assert {name for name, value in one._asdict().items() if value != getattr(other, name)} <= different
    leases = "SELECT count(DISTINCT locked_until - now() > interval '50 seconds') FROM holdfast.job"
    assert number(worker.conn, leases) == 1
    assert set(statuses(worker.conn).values()) == {"processing"}


def test_one_of_two_that_are_named_the_same_job_gets_it(connect: Connect) -> None:
    first, second = Worker(connect()), Worker(connect())
    [named] = enqueue(first.conn, job())
    with first.conn.transaction():
        assert len(run_sync(first.conn, claim_named(first.id, [named], first.queues, first.leases))) == 1
        assert run_sync(second.conn, claim_named(second.id, [named], second.queues, second.leases)) == []
    assert run_sync(second.conn, claim_named(second.id, [named], second.queues, second.leases)) == []
