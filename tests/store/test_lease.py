from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast._drivers import run_sync
from holdfast._model.job import Progress
from holdfast._model.work import Lease
from holdfast._store.lease import ClaimAnswer, Held, release_strays, renew_leases, report_progress
from holdfast._store.search import cancel_job
from tests.kit.plans import explained
from tests.kit.workers import RELEASED, Worker, enqueue, expire_leases, job, number

if TYPE_CHECKING:
    from tests.kit.workers import Connect


def test_each_lease_is_renewed_by_its_own_length(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job(), job())
    short, long = worker.claim()
    held = {Held(short.id, short.token): Lease(5), Held(long.id, long.token): Lease(500)}
    with worker.conn.transaction():
        assert run_sync(worker.conn, renew_leases(worker.id, held)) == {}
        left = dict(worker.conn.execute("SELECT id, locked_until - now() FROM holdfast.job").fetchall())
    assert left == {short.id: timedelta(seconds=5), long.id: timedelta(seconds=500)}


def test_all_leases_are_renewed_by_one_statement(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, *[job() for _ in range(500)])
    claimed = worker.claim(500)
    expire_leases(worker.conn)
    with explained(worker.conn) as plans:
        assert worker.renew(claimed) == {}
    assert sum("UPDATE holdfast.job" in plan for plan in plans) == 1
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job WHERE locked_until > now()") == 500


def test_nothing_held_is_nothing_to_renew(connect: Connect) -> None:
    assert Worker(connect()).renew([]) == {}


def test_what_was_lost_and_why(connect: Connect) -> None:
    worker, other = Worker(connect()), Worker(connect())
    conn = worker.conn
    kept, done, taken, gone, asked, free = enqueue(conn, *[job() for _ in range(6)])
    held = {claimed.id: claimed for claimed in worker.claim()}
    worker.end([held[done]])
    expire_leases(conn, [held[taken], held[free]])
    assert {lost.id for lost in worker.reap()} == {taken, free}
    conn.execute("UPDATE holdfast.job SET available_at = now() + interval '1 day' WHERE id = %s", [free])
    assert [claimed.id for claimed in other.claim()] == [taken]
    conn.execute("DELETE FROM holdfast.job WHERE id = %s", [gone])
    assert run_sync(conn, cancel_job(asked)) == "requested"
    before = number(conn, "SELECT locked_until FROM holdfast.job WHERE id = %s", asked)
    assert worker.renew(held.values()) == {
        done: ClaimAnswer.already_completed,
        taken: ClaimAnswer.taken_by_another_worker,
        free: ClaimAnswer.taken_by_another_worker,
        gone: ClaimAnswer.not_found,
        asked: ClaimAnswer.cancelled,
    }
    assert number(conn, "SELECT locked_until FROM holdfast.job WHERE id = %s", asked) > before, "renewed all the same"
    assert number(conn, "SELECT locked_until > now() + interval '50 s' FROM holdfast.job WHERE id = %s", kept)


def test_a_transaction_that_comes_after_a_running_chain_does_not_hold_up_its_lease(connect: Connect) -> None:
    worker, user = Worker(connect()), connect()
    (chain,) = enqueue(worker.conn, job())
    enqueue(user, job("waits", after=[chain]))
    claimed = worker.claim()
    expire_leases(worker.conn)
    with user.transaction():
        enqueue(user, job("waits", after=[chain]))
        assert worker.renew(claimed) == {}
        held = Held(chain, claimed[0].token)
        assert run_sync(worker.conn, report_progress(worker.id, {held: Progress(0.5)})) == {held}
    assert worker.reap() == []


def test_the_same_job_under_two_tokens(connect: Connect) -> None:
    """A worker that released a job and claimed it again: the old claim is lost, the new one renewed."""
    worker = Worker(connect())
    enqueue(worker.conn, job())
    old = worker.claim()
    worker.end(old, RELEASED)
    new = worker.claim()
    held = {Held(claim.id, claim.token): Lease() for claim in (*old, *new)}
    answers = run_sync(worker.conn, renew_leases(worker.id, held))
    assert answers == {Held(old[0].id, old[0].token): ClaimAnswer.taken_by_another_worker}


def test_strays_are_given_back_uncounted(connect: Connect) -> None:
    """The answer to a claim was lost on the way: the worker holds jobs and does not know it."""
    worker, other = Worker(connect()), Worker(connect())
    enqueue(worker.conn, *[job() for _ in range(4)])
    (known,) = worker.claim(1)
    (anothers,) = other.claim(1)
    strays = worker.claim(2)
    assert run_sync(worker.conn, release_strays(worker.id, [Held(known.id, known.token)])) == 2
    left = worker.conn.execute("SELECT id, locked_by, attempt FROM holdfast.job ORDER BY id").fetchall()
    free = [(stray.id, None, 0) for stray in strays]
    assert left == sorted([(known.id, worker.id, 1), (anothers.id, other.id, 1), *free])
    assert run_sync(worker.conn, release_strays(worker.id, [Held(known.id, known.token)])) == 0


def test_what_is_known_by_an_old_token_only_is_a_stray(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job())
    old = worker.claim()
    worker.end(old, RELEASED)
    worker.claim()
    assert run_sync(worker.conn, release_strays(worker.id, [Held(one.id, one.token) for one in old])) == 1
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job WHERE status = 'pending'") == 1
