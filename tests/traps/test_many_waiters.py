"""The end of a chain for which many jobs wait: bounded statements, one copy of its result, nothing lost between."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.errors import InvalidJob
from holdfast._model.outcome import Completed
from holdfast._store.chain import delete_kept_ends, read_blockers, release_waiters, repair_blockers
from holdfast._store.finish import Ending, finish_jobs
from holdfast._store.search import cancel_job, replay_job
from tests.kit.mutation import open_trap
from tests.kit.plans import buffers
from tests.kit.workers import CANCELLED, FAILED, Worker, enqueue, fill, job, number, statuses

if TYPE_CHECKING:
    from tests.kit.workers import Connect

MANY = 1_001
"""One more than one statement releases."""
LARGE = f'"{random.Random(7).randbytes(50_000).hex()}"'


def crowd(conn: psycopg.Connection[Any], chain: int, jobs: int = MANY) -> list[int]:
    """Let so many jobs wait for a chain; return their ids."""
    (first,) = enqueue(conn, job("waits", after=[chain]))
    fill(conn, jobs - 1, kind="waits", blockers_left="1", status="'blocked'")
    conn.execute(
        "INSERT INTO holdfast.blocker (job_id, chain_id, ordinal) "
        "SELECT id, %s, 1 FROM holdfast.job WHERE kind = 'waits' AND id > %s",
        [chain, first],
    )
    conn.execute("ANALYZE holdfast.job, holdfast.blocker")
    return list(range(first, first + jobs))


def pending(conn: psycopg.Connection[Any]) -> list[int]:
    return [row[0] for row in conn.execute("SELECT id FROM holdfast.job WHERE status = 'pending' ORDER BY id")]


def release(conn: psycopg.Connection[Any]) -> int:
    released = 0
    while more := run_sync(conn, release_waiters()):
        released += more
    return released


@pytest.fixture
def worker(connect: Connect) -> Worker:
    return Worker(connect())


@pytest.mark.nightly
@pytest.mark.parametrize("many", [10_000, pytest.param(100_000, marks=pytest.mark.prove)])
def test_an_end_and_a_portion_cost_the_same_however_many_wait(worker: Worker, connect: Connect, many: int) -> None:
    conn, reader = worker.conn, connect()
    ending, portions = {}, []
    for waiters in (10, many):
        (chain,) = enqueue(conn, job())
        crowd(conn, chain, waiters)
        (claimed,) = worker.claim()
        ending[waiters] = buffers(conn, finish_jobs(worker.id, [Ending(claimed, Completed(LARGE))]))
        worker.end([claimed], Completed(LARGE))
    assert ending[many] <= ending[10]
    # An old snapshot keeps the entries of all that were released.
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT count(*) FROM holdfast.queue")
    for _ in range(many // 500):
        portions.append(buffers(conn, release_waiters(limit=100)))
        assert run_sync(conn, release_waiters()) == 500
    assert portions[-1] < portions[0] * 1.5
    assert run_sync(conn, release_waiters()) == 0


def test_a_batch_that_ends_many_chains_is_bounded_too(worker: Worker) -> None:
    """Those with few waiters release them at once, up to a bound for all of them together."""
    chains = enqueue(worker.conn, *[job()] * 25)
    few, *crowds = chains
    (waiter,) = enqueue(worker.conn, job("waits", after=[few]))
    for chain in crowds:
        crowd(worker.conn, chain, 100)
    worker.end(worker.claim())
    assert pending(worker.conn)[0] == waiter
    assert len(pending(worker.conn)) == 1_901
    assert release(worker.conn) == 500


def test_a_large_result_is_stored_once(worker: Worker) -> None:
    small, large = enqueue(worker.conn, *[job()] * 2)
    waiters = enqueue(worker.conn, *[job("waits", after=[large, small])] * 3)
    first, last = worker.claim()
    worker.end([first], Completed("7"))
    worker.end([last], Completed(LARGE))
    assert number(worker.conn, "SELECT array_agg(chain_id) FROM holdfast.kept_end") == [large]
    assert number(worker.conn, "SELECT count(result) FROM holdfast.blocker WHERE chain_id = %s", large) == 0
    found = run_sync(worker.conn, read_blockers(waiters[1:]))
    assert [[blocker.result for blocker in found[waiter]] for waiter in waiters[1:]] == [[LARGE, "7"]] * 2
    late = enqueue(worker.conn, *[job("waits", after=[large])] * 2)
    assert [found[0].result for found in run_sync(worker.conn, read_blockers(late)).values()] == [LARGE] * 2
    assert number(worker.conn, "SELECT count(result) FROM holdfast.blocker WHERE chain_id = %s", large) == 0
    # Kept for as long as it is needed, whatever becomes of the history.
    worker.conn.execute("TRUNCATE holdfast.job_history")
    others = Worker(worker.conn, "waits")
    taken = others.claim()
    assert run_sync(worker.conn, read_blockers([taken[0].id]))[taken[0].id][0].result == LARGE
    others.end(taken[1:])
    assert run_sync(worker.conn, delete_kept_ends(limit=1)) == (1, 0)
    assert run_sync(worker.conn, delete_kept_ends(since=1)) == (0, 1)
    others.end(taken[:1])
    assert run_sync(worker.conn, delete_kept_ends()) == (0, 1)


def test_one_waiter_has_its_own_copy(worker: Worker) -> None:
    (chain,) = enqueue(worker.conn, job())
    (waiter,) = enqueue(worker.conn, job("waits", after=[chain]))
    worker.end(worker.claim(), Completed(LARGE))
    assert number(worker.conn, "SELECT count(*) FROM holdfast.kept_end") == 0
    assert run_sync(worker.conn, read_blockers([waiter]))[waiter][0].result == LARGE


def test_what_a_crash_left_is_released_by_the_next(worker: Worker, database: str) -> None:
    conn, dying = worker.conn, psycopg.connect(database, autocommit=True)
    chain, other = enqueue(conn, *[job()] * 2)
    waiters = crowd(conn, chain, 1_200)
    conn.execute("UPDATE holdfast.job SET blockers_left = 2 WHERE id = %s", [waiters[0]])
    conn.execute("INSERT INTO holdfast.blocker (job_id, chain_id, ordinal) VALUES (%s, %s, 2)", [waiters[0], other])
    worker.end(worker.claim(1), Completed("7"))
    assert pending(conn) == [other]
    assert run_sync(dying, release_waiters()) == 500
    assert pending(conn) == [other, *waiters[1:500]], "the oldest first, and one waits for another chain too"
    dying.execute("BEGIN")
    assert run_sync(dying, release_waiters()) == 500
    conn.execute("SELECT pg_terminate_backend(%s, 10000)", [dying.info.backend_pid])
    dying.close()
    assert pending(conn) == [other, *waiters[1:500]]
    assert release(conn) == 700
    assert pending(conn) == [other, *waiters[1:]]
    assert run_sync(conn, repair_blockers()).rows == 0
    found = run_sync(conn, read_blockers(waiters))
    assert {found[waiter][0].result for waiter in waiters} == {"7"}


def test_chains_take_turns(worker: Worker) -> None:
    first, second = enqueue(worker.conn, *[job()] * 2)
    early, late = crowd(worker.conn, first), crowd(worker.conn, second)
    worker.end(worker.claim())
    for _ in range(2):
        assert run_sync(worker.conn, release_waiters(limit=100)) == 100
    assert pending(worker.conn) == [*early[:100], *late[:100]]


def test_a_locked_waiter_delays_no_other(worker: Worker, connect: Connect) -> None:
    conn, user = worker.conn, connect()
    (chain,) = enqueue(conn, job())
    waiters = crowd(conn, chain)
    worker.end(worker.claim())
    user.execute("BEGIN")
    user.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [waiters[0]])
    assert release(conn) == MANY - 1
    assert pending(conn) == waiters[1:]
    assert number(conn, "SELECT release_at > now() FROM holdfast.kept_end"), "tried again, but not at once"
    user.execute("COMMIT")
    conn.execute("UPDATE holdfast.kept_end SET release_at = now()")
    assert release(conn) == 1
    assert pending(conn) == waiters
    assert number(conn, "SELECT release_at IS NULL FROM holdfast.kept_end")


def test_a_crowd_learns_that_the_chain_failed(worker: Worker) -> None:
    (chain,) = enqueue(worker.conn, job())
    waiters = crowd(worker.conn, chain, MANY + 1)
    worker.conn.execute("UPDATE holdfast.job SET run_anyway = true WHERE id = %s", [waiters[1]])
    assert run_sync(worker.conn, cancel_job(waiters[2])) == "cancelled"
    worker.end(worker.claim(), FAILED)
    with pytest.raises(InvalidJob, match="still being released"):
        run_sync(worker.conn, replay_job(chain))
    assert release(worker.conn) == MANY
    taken = Worker(worker.conn, "waits").claim(2)
    assert [(claimed.id, claimed.blocker_failed) for claimed in taken] == [(waiters[0], True), (waiters[1], False)]
    blocker = run_sync(worker.conn, read_blockers(waiters))[waiters[1]][0]
    assert (blocker.status, blocker.error_code, blocker.error) == ("failed", "Broken", "it broke")
    again = run_sync(worker.conn, replay_job(chain))
    assert again is not None
    assert statuses(worker.conn)[again] == "pending"
    worker.end(worker.claim(), CANCELLED)


def test_without_the_portions_the_rest_would_wait_for_ever(worker: Worker) -> None:
    open_trap(worker.conn, "keep_ends", ("CASE WHEN due THEN clock_timestamp() END", "NULL"))
    (chain,) = enqueue(worker.conn, job())
    crowd(worker.conn, chain)
    worker.end(worker.claim())
    assert release(worker.conn) == 0
    assert run_sync(worker.conn, repair_blockers()).rows > 0, "only maintenance would find them"
