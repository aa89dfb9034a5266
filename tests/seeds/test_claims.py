"""Claims, leases, fencing and the reaper, as the documents state them. Each call is one statement of the store."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg

from tests.kit.statement import CYCLES, DESIGN, DIFFERENCES, LIFECYCLE, MODES, RULES, Document
from tests.kit.workers import RETRIED, Worker, enqueue, expire_leases, job

if TYPE_CHECKING:
    from tests.kit.ledger import Ledger

cycles, design, lifecycle, modes, rules = map(Document, (CYCLES, DESIGN, LIFECYCLE, MODES, RULES))
ROW = "SELECT status::text, locked_by, lock_token, locked_until, attempt FROM holdfast.job WHERE kind = %s ORDER BY id"


@rules.states("RULE-020-001: a claim sets status, locked_until and lock_token in one statement")
@rules.states("RULE-020-032: each worker has an identifier of its own, and its claims are under it")
@design.states("a job gets its lease with the first prepare; ours has it from the claim on", differs=DIFFERENCES)
@design.states(
    "acquiring makes the job running, called processing, and counts the attempt, atomically", differs=DIFFERENCES
)
@modes.states("a claim sets the status to processing and lockedBy to the worker")
@rules.states("RULE-020-003: every claim has a token, larger at every claim")
@cycles.states("the lock returns what is needed to process: kind, payload, attempt")
def test_the_row_of_a_claimed_job(ledger: Ledger) -> None:
    ids = enqueue(ledger.conn, *[job("claimed", '{"to": "device"}')] * 2)
    assert ledger.rows(ROW, "claimed") == [("pending", None, None, None, 0)] * 2
    workers = [Worker(ledger.conn, "claimed") for _ in range(2)]
    first, second = (held for worker in workers for held in worker.claim(1))
    assert [(*row[:3], row[3] is not None, row[4]) for row in ledger.rows(ROW, "claimed")] == [
        ("processing", workers[0].id, first.token, True, 1),
        ("processing", workers[1].id, second.token, True, 1),
    ]
    assert workers[0].id != workers[1].id
    assert [(held.id, held.kind, held.payload, held.attempt) for held in (first, second)] == [
        (one, "claimed", '{"to": "device"}', 1) for one in ids
    ]
    assert second.token > first.token


@rules.states("RULE-020-001: every claim sets locked_until, a bounded time ahead")
@modes.states("a claim sets lockedUntil to now and the lease duration")
def test_the_length_of_a_lease(ledger: Ledger) -> None:
    enqueue(ledger.conn, *[job("bounded")] * 3)
    before = ledger.value("SELECT clock_timestamp()")
    Worker(ledger.conn, "bounded").claim()
    after = ledger.value("SELECT clock_timestamp()")
    lease = timedelta(seconds=60)
    assert [before + lease <= row[3] <= after + lease for row in ledger.rows(ROW, "bounded")] == [True] * 3


@rules.states("RULE-020-001: a claim takes the oldest first, and at most a batch")
@design.states("acquiring takes the earliest pending job first")
@cycles.states("deliveries are taken by their age, then by id")
@cycles.states("a lock takes at most as many deliveries as asked for")
def test_the_order_of_claims(ledger: Ledger) -> None:
    ids = enqueue(ledger.conn, *[job("oldest") for _ in range(10)])
    ledger.do("UPDATE holdfast.job SET available_at = available_at - interval '1 second' WHERE id = %s", ids[9])
    worker = Worker(ledger.conn, "oldest")
    assert [worker.claim(1)[0].id for _ in range(3)] == [ids[9], *ids[:2]]
    assert [each.id for each in worker.claim(4)] == ids[2:6]


@lifecycle.states("a claim takes pending jobs whose next attempt is due, and locks them as processing")
@modes.states("a pending job waits until its availableAt")
@design.states("acquiring leaves jobs that are scheduled for later")
def test_only_what_is_due_is_claimed(ledger: Ledger) -> None:
    later, due = enqueue(ledger.conn, job("due", delay=timedelta(hours=1)), job("due"))
    assert [each.id for each in Worker(ledger.conn, "due").claim()] == [due]
    assert (ledger.status(due), ledger.status(later)) == ("processing", "pending")


@modes.states("a job is processing under one worker only")
@design.states("acquiring answers with nothing when nothing is available")
@cycles.states("a delivery that is locked by a worker is not selected again")
def test_a_claimed_job_is_not_claimed_again(ledger: Ledger) -> None:
    enqueue(ledger.conn, job("single"))
    first, second = Worker(ledger.conn, "single"), Worker(ledger.conn, "single")
    assert len(first.claim()) == 1
    assert second.claim() == []


@rules.states("RULE-020-040: workers that claim at the same time do not wait for each other")
@modes.states("a claim does not wait for rows that another transaction has locked: SKIP LOCKED")
@cycles.states("SKIP LOCKED: a worker passes over deliveries that another one is locking")
def test_claims_do_not_wait(ledger: Ledger) -> None:
    first, second, third = enqueue(ledger.conn, *[job("concurrent") for _ in range(3)])
    with psycopg.connect(ledger.url) as conn:  # a claim whose transaction stays open, and a row that it has locked
        other = Worker(ledger.conn, "concurrent")
        conn.execute("SET statement_timeout = '10s'")
        assert [each.id for each in Worker(conn, "concurrent").claim(1)] == [first]
        conn.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [second])
        ledger.do("SET statement_timeout = '10s'")
        assert [each.id for each in other.claim()] == [third]
        conn.rollback()


@design.states("completing clears the lease and makes the job completed")
@lifecycle.states("success makes the job sent, which is called completed", differs=DIFFERENCES)
@cycles.states("completed_at is set when a delivery has ended, and not before")
def test_completing(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("cleared"))
    worker = Worker(ledger.conn, "cleared")
    finished = "SELECT finished_at IS NOT NULL FROM holdfast.job_history WHERE id = %s"
    held = worker.claim()
    assert ledger.rows(finished, one) == []
    worker.end(held)
    assert ledger.rows(finished, one) == [(True,)]
    assert ledger.job(one)[:2] == ("completed", 1)
    assert ledger.rows(ROW, "cleared") == [], "a job that has ended is no live row, and has no lease"


@rules.states("RULE-020-003: a token is not enough: the worker must be the one that claimed")
@design.states("ownership: while a lease holds, only its worker can finish the job")
def test_a_token_is_not_enough(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("owned"))
    owner, other = Worker(ledger.conn, "owned"), Worker(ledger.conn, "owned")
    held = owner.claim()
    assert [answer.name for answer in other.end(held).values()] != ["completed"]
    assert ledger.status(one) == "processing"
    assert [answer.name for answer in owner.end(held).values()] == ["completed"]


@design.states("detection: a worker whose lease was taken is told so when it renews")
@design.states("each database operation verifies that the job is still this worker's")
def test_a_lease_that_was_taken(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("taken"))
    first, second = Worker(ledger.conn, "taken"), Worker(ledger.conn, "taken")
    held = first.claim()
    expire_leases(ledger.conn, held)
    second.reap()
    again = second.claim()
    assert first.renew(held)[one].name == "taken_by_another_worker"
    first.end(held)
    assert ledger.job(one)[:2] == ("processing", 2), "the old holder's ending changed nothing"
    second.end(again)
    assert ledger.status(one) == "completed"


@rules.states("RULE-020-021: the reaper sets status to pending, locked_until and lock_token to null")
@rules.states("RULE-020-021: the reaper leaves leases alone that have not expired")
@rules.states("RULE-020-021: what was reaped answers with its ids")
@rules.states("RULE-020-012: what a worker cannot release is recovered by the reaper of another")
@design.states("the reaper sends a job with an expired lease back to pending and clears leasedBy and leasedUntil")
@lifecycle.states("a job stuck in processing goes back to pending after the timeout")
@modes.states("an unexpired lease is respected: nobody else gets the job")
def test_reaping(ledger: Ledger) -> None:
    ids = enqueue(ledger.conn, job("orphan"), job("orphan"))
    holder, other = Worker(ledger.conn, "orphan"), Worker(ledger.conn, "orphan")
    held = holder.claim()
    assert other.reap() == [], "not before the lease has expired"
    assert other.claim() == []
    expire_leases(ledger.conn, held)
    assert sorted(each.id for each in other.reap()) == ids
    assert ledger.rows(ROW, "orphan") == [("pending", None, None, None, 1)] * 2
    assert sorted((each.id, each.attempt) for each in other.claim()) == [(one, 2) for one in ids], "at once"


@cycles.states("attempt_count is kept with the delivery")
@cycles.states("the last error's code and message are kept with the delivery")
@cycles.states("retries end in failed, not before the attempts are used up")
def test_attempts_that_fail(ledger: Ledger) -> None:
    [one] = enqueue(ledger.conn, job("erred", max_attempts=3))
    worker = Worker(ledger.conn, "erred")
    for attempt in (1, 2):
        worker.end(worker.claim(), RETRIED)
        assert ledger.job(one)[:5] == ("pending", attempt, None, "Broken", "it broke")
    expire_leases(ledger.conn, worker.claim())
    worker.reap()
    assert ledger.job(one)[:2] == ("failed", 3)
