from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.errors import InvalidJob
from holdfast._model.job import Blocker
from holdfast._model.outcome import Completed, Outcome
from holdfast._model.unique import Unique
from holdfast._store.chain import complete_chain, read_blockers, release_waiters, repair_blockers
from holdfast._store.enqueue import enqueue_job
from holdfast._store.finish import complete_job
from holdfast._store.inspect import delete_job
from holdfast._store.lease import Held
from holdfast._store.search import cancel_job, replay_job
from holdfast._store.statement import Statement
from tests.kit.sessions import await_waiting, background
from tests.kit.workers import (
    CANCELLED,
    FAILED,
    RELEASED,
    RETRIED,
    Worker,
    drain,
    enqueue,
    expire_leases,
    job,
    number,
    statuses,
)

if TYPE_CHECKING:
    from tests.kit.workers import Connect

DONE = Completed("1")


def left(worker: Worker, waiter: int) -> tuple[Any, ...]:
    query = "SELECT status::text, blockers_left, blocker_failed FROM holdfast.job WHERE id = %s"
    row: tuple[Any, ...] = worker.conn.execute(query, [waiter]).fetchall()[0]
    return row


def test_a_job_runs_after_all_that_it_names(worker: Worker) -> None:
    first, second, third = enqueue(worker.conn, *[job()] * 3)
    (waiter,) = enqueue(worker.conn, job(after=[second, first, third]))
    assert left(worker, waiter) == ("blocked", 3, None)
    claimed = worker.claim()
    assert [taken.id for taken in claimed] == [first, second, third]
    worker.end(claimed[:1], Completed('"a"'))
    assert left(worker, waiter) == ("blocked", 2, None)
    assert worker.end(claimed[1:], Completed()) == {second: "completed", third: "completed"}
    assert left(worker, waiter) == ("pending", 0, None)
    (taken,) = worker.claim()
    assert (taken.id, taken.has_blockers, taken.blocker_failed) == (waiter, True, False)
    assert run_sync(worker.conn, read_blockers([waiter])) == {
        waiter: [
            Blocker(second, "completed", None, None, None),
            Blocker(first, "completed", '"a"', None, None),
            Blocker(third, "completed", None, None, None),
        ]
    }
    worker.end([taken], RETRIED)
    (taken,) = worker.claim()
    assert len(run_sync(worker.conn, read_blockers([waiter]))[waiter]) == 3, "at every attempt"
    assert worker.end([taken]) == {waiter: "completed"}
    assert number(worker.conn, "SELECT count(*) FROM holdfast.blocker") == 0


def test_jobs_that_come_after_nothing_say_so(worker: Worker) -> None:
    enqueue(worker.conn, job(), job(after=[]))
    assert [(taken.has_blockers, taken.blocker_failed) for taken in worker.claim()] == [(False, False)] * 2
    assert run_sync(worker.conn, read_blockers([1, 2])) == {}


def test_a_blocker_is_a_whole_chain(worker: Worker) -> None:
    (chain,) = enqueue(worker.conn, job())
    (waiter,) = enqueue(worker.conn, job(after=[chain]))
    for _ in range(3):
        worker.end(worker.claim(), Completed('"not yet"', job().as_json()))
        assert left(worker, waiter) == ("blocked", 1, None)
    worker.end(worker.claim(), Completed('"last"'))
    assert left(worker, waiter) == ("pending", 0, None)
    assert run_sync(worker.conn, read_blockers([waiter]))[waiter][0].result == '"last"'


def test_what_has_ended_already_does_not_hold_a_job_up(worker: Worker) -> None:
    first, second = enqueue(worker.conn, *[job()] * 2)
    worker.end(worker.claim(), Completed("7"))
    ready, waiting = enqueue(worker.conn, job(after=[first, second]), job(after=[first]))
    assert left(worker, ready) == left(worker, waiting) == ("pending", 0, None)
    assert [b.result for b in run_sync(worker.conn, read_blockers([ready]))[ready]] == ["7", "7"]


def test_the_same_chain_may_be_named_twice(worker: Worker) -> None:
    (chain,) = enqueue(worker.conn, job())
    (waiter,) = enqueue(worker.conn, job(after=[chain, chain]))
    assert left(worker, waiter) == ("blocked", 2, None)
    worker.end(worker.claim())
    assert left(worker, waiter) == ("pending", 0, None)


def test_one_job_from_sql_and_one_by_the_library(worker: Worker) -> None:
    (chain,) = enqueue(worker.conn, job())
    by_hand = number(worker.conn, "SELECT holdfast.enqueue('k', blockers => ARRAY[%s]::bigint[])", chain)
    handle = run_sync(worker.conn, enqueue_job(job(after=[chain])))
    after_handle = run_sync(worker.conn, enqueue_job(job(after=[handle, chain])))
    assert [left(worker, one)[1] for one in (by_hand, handle.id, after_handle.id)] == [1, 1, 2]
    assert drain(worker) == [chain, by_hand, handle.id, after_handle.id]


def test_jobs_of_one_call_may_come_after_earlier_ones(worker: Worker) -> None:
    chain, other = enqueue(worker.conn, job(), job())
    waiters = enqueue(worker.conn, job(after=[chain]), job(), job(after=[chain, other], unique=Unique("u")))
    assert [statuses(worker.conn)[one] for one in waiters] == ["blocked", "pending", "blocked"]


def test_a_chain_that_is_not_there_is_refused(worker: Worker) -> None:
    with pytest.raises(InvalidJob, match="there is no chain 4711"):
        enqueue(worker.conn, job(after=[4711]))
    assert statuses(worker.conn) == {}


def test_too_many_are_refused(worker: Worker) -> None:
    with pytest.raises(InvalidJob, match="at most 10000"):
        job(after=range(1, 10_002))
    by_hand = "SELECT holdfast.enqueue('k', blockers => ARRAY(SELECT generate_series(1, 10001)))"
    with pytest.raises(InvalidJob, match="blockers: at most 10000 chains"):
        run_sync(worker.conn, Statement(by_hand, {}, list))


FAILURES: dict[str, Outcome | None] = {
    "failed": FAILED,
    "cancelled": CANCELLED,
    "called off": None,
    "deleted": None,
    "reaped": None,
}


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("policy", ["fail", "run"])
def test_a_blocker_that_does_not_complete(worker: Worker, how: str, policy: str) -> None:
    bad, good = enqueue(worker.conn, job(max_attempts=1), job())
    (waiter,) = enqueue(worker.conn, job(after=[bad, good], if_blocker_fails=policy))
    if how == "called off":
        assert run_sync(worker.conn, cancel_job(bad)) == "cancelled"
    elif how == "deleted":
        assert run_sync(worker.conn, delete_job(bad)) == "deleted"
    else:
        running = worker.claim(1)
        outcome = FAILURES[how]
        if outcome is None:
            expire_leases(worker.conn)
            worker.reap()
        else:
            worker.end(running, outcome)
    if policy == "fail":
        assert left(worker, waiter) == ("pending", 0, True), "at once"
    else:
        assert left(worker, waiter) == ("blocked", 1, True)
        worker.end([taken for taken in worker.claim() if taken.id == good])
        assert left(worker, waiter) == ("pending", 0, True)
    (taken,) = [taken for taken in worker.claim() if taken.id == waiter]
    assert (taken.has_blockers, taken.blocker_failed) == (True, policy == "fail")
    blocker, *_ = run_sync(worker.conn, read_blockers([waiter]))[waiter]
    assert (blocker.status, blocker.error_code) == {
        "failed": ("failed", "Broken"),
        "cancelled": ("cancelled", None),
        "called off": ("cancelled", "cancelled"),
        "deleted": ("cancelled", "deleted"),
        "reaped": ("failed", "lease_expired"),
    }[how]


def test_a_failure_runs_through_those_that_wait_for_each_other(worker: Worker) -> None:
    (first,) = enqueue(worker.conn, job())
    (second,) = enqueue(worker.conn, job(after=[first]))
    (third,) = enqueue(worker.conn, job(after=[second]))
    for _ in range(3):
        worker.end(worker.claim(), FAILED)
    assert statuses(worker.conn) == {first: "failed", second: "failed", third: "failed"}


def test_a_waiter_may_be_called_off(worker: Worker) -> None:
    (chain,) = enqueue(worker.conn, job())
    plain, keyed = enqueue(worker.conn, job(after=[chain]), job(after=[chain], order_key="a"))
    assert run_sync(worker.conn, cancel_job(plain)) == "cancelled"
    assert number(worker.conn, "SELECT count(*) FROM holdfast.blocker WHERE job_id = %s", plain) == 0
    assert run_sync(worker.conn, cancel_job(keyed)) == "requested"
    assert left(worker, keyed) == ("pending", 0, None), "it waits for nobody any more"
    taken = {taken.id: taken for taken in worker.claim()}
    assert taken[keyed].cancelled
    worker.end(list(taken.values()), CANCELLED)
    assert set(statuses(worker.conn).values()) == {"cancelled"}
    assert number(worker.conn, "SELECT count(*) FROM holdfast.blocker") == 0


def test_a_waiter_keeps_its_place_in_its_order_key(worker: Worker) -> None:
    (chain,) = enqueue(worker.conn, job())
    head, waiter, last = enqueue(worker.conn, job(order_key="a"), job(order_key="a", after=[chain]), job(order_key="a"))
    first = sorted(worker.claim())
    assert [taken.id for taken in first] == [chain, head]
    worker.end(first[1:])
    assert left(worker, waiter) == ("blocked", 1, None), "its turn, and its blocker runs"
    assert worker.claim() == []
    run_sync(worker.conn, cancel_job(last))
    number(worker.conn, "SELECT holdfast.resume_order_key('a')")
    assert left(worker, waiter) == ("blocked", 1, None)
    worker.end(first[:1])
    assert drain(worker) == [waiter, last]


def test_a_waiter_that_is_let_go_before_its_turn(worker: Worker) -> None:
    (chain,) = enqueue(worker.conn, job())
    head, waiter = enqueue(worker.conn, job(order_key="a"), job(order_key="a", after=[chain]))
    by_chain, by_key = sorted(worker.claim())
    worker.end([by_chain])
    assert worker.claim() == [], "the head of its key runs"
    assert left(worker, waiter) == ("blocked", 0, None)
    worker.end([by_key])
    assert drain(worker) == [waiter]
    assert statuses(worker.conn)[head] == "completed"


@pytest.mark.parametrize("policy", ["keep", "debounce", "replace"])
def test_a_unique_key_and_what_its_job_comes_after(worker: Worker, policy: Any) -> None:
    first, second = enqueue(worker.conn, job(), job())
    unique = Unique("u", on_conflict=policy)
    (waiter,) = enqueue(worker.conn, job(after=[first], unique=unique))
    assert enqueue(worker.conn, job(after=[second, second], unique=unique)) == [waiter]
    named = [blocker.chain_id for blocker in run_sync(worker.conn, read_blockers([waiter]))[waiter]]
    assert named == ([second, second] if policy == "replace" else [first])
    assert left(worker, waiter) == ("blocked", len(named), None)
    assert enqueue(worker.conn, job(unique=unique)) == [waiter]
    assert left(worker, waiter) == (("pending", None, None) if policy == "replace" else ("blocked", 1, None))
    assert set(drain(worker)) == {first, second, waiter}


def test_the_last_of_one_call_decides_what_its_job_comes_after(worker: Worker) -> None:
    first, second = enqueue(worker.conn, job(), job())
    unique = Unique("u", on_conflict="replace")
    waiter, same = enqueue(worker.conn, job(after=[first], unique=unique), job(after=[second], unique=unique))
    assert waiter == same
    assert [blocker.chain_id for blocker in run_sync(worker.conn, read_blockers([waiter]))[waiter]] == [second]


def test_a_chain_may_go_on_after_others(worker: Worker) -> None:
    """Fan-out and fan-in in the middle of a chain."""
    (chain,) = enqueue(worker.conn, job())
    (claimed,) = worker.claim()
    with worker.conn.transaction():
        parts = enqueue(worker.conn, *[job()] * 3)
        following = job(after=parts).as_json()
        assert (
            run_sync(worker.conn, complete_job(worker.id, Held(chain, claimed.token), None, following)) == "completed"
        )
    waiter = number(worker.conn, "SELECT id FROM holdfast.job WHERE chain_id = %s", chain)
    assert left(worker, waiter) == ("blocked", 3, None)
    assert drain(worker) == [*parts, waiter]


def test_a_chain_does_not_wait_for_itself(worker: Worker) -> None:
    (chain,) = enqueue(worker.conn, job())
    claimed = worker.claim()
    (waiter,) = enqueue(worker.conn, job(after=[chain]))
    (far,) = enqueue(worker.conn, job(after=[waiter]))
    for named in (chain, waiter, far):
        with pytest.raises(InvalidJob, match=f"chain {chain} would wait for itself"):
            worker.end(claimed, Completed(None, job(after=[named]).as_json()))
    assert statuses(worker.conn)[chain] == "processing"


def test_a_replaced_job_does_not_wait_for_itself(worker: Worker) -> None:
    unique = Unique("u", on_conflict="replace")
    (chain,) = enqueue(worker.conn, job(unique=unique))
    (waiter,) = enqueue(worker.conn, job(after=[chain]))
    with pytest.raises(InvalidJob, match=f"chain {chain} would wait for itself"):
        enqueue(worker.conn, job(unique=unique, after=[waiter]))


def test_continuing_does_not_wait_for_a_locked_blocker(worker: Worker, connect: Connect) -> None:
    chain, other, third = enqueue(worker.conn, *[job()] * 3)
    claimed = worker.claim(1)
    user = connect()
    user.execute("BEGIN")
    user.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [other])
    worker.conn.execute("SET lock_timeout = '5s'")
    following = Completed(None, job(after=[other, third]).as_json())
    assert worker.end(claimed, following) == {chain: "busy"}
    user.execute("ROLLBACK")
    assert worker.end(claimed, following) == {chain: "completed"}


def test_a_replay_comes_after_the_same_chains(worker: Worker) -> None:
    first, second = enqueue(worker.conn, job(), job())
    (waiter,) = enqueue(worker.conn, job(after=[first, second]))
    bad, good = sorted(worker.claim())
    worker.end([bad], FAILED)
    worker.end([good], DONE)
    worker.end(worker.claim(), FAILED)
    assert statuses(worker.conn)[waiter] == "failed"
    assert number(worker.conn, "SELECT blockers FROM holdfast.job_failed WHERE id = %s", waiter) == [first, second]
    too_early = run_sync(worker.conn, replay_job(waiter))
    assert too_early is not None
    assert left(worker, too_early) == ("pending", 0, True)
    worker.end(worker.claim(), FAILED)
    run_sync(worker.conn, replay_job(first))
    again = run_sync(worker.conn, replay_job(waiter))
    assert again is not None
    assert left(worker, again) == ("blocked", 1, None), "the failed chain goes on, and is waited for"
    assert drain(worker)[-1] == again


def test_naming_waits_for_a_chain_that_goes_on(worker: Worker, connect: Connect) -> None:
    """The live row is gone when its lock comes free, and the next one was not there when the look began."""
    (chain,) = enqueue(worker.conn, job())
    (claimed,) = worker.claim()
    handler, user = connect(), connect()
    handler.execute("BEGIN")
    run_sync(handler, complete_job(worker.id, Held(chain, claimed.token), None, job().as_json()))
    with background(lambda: enqueue(user, job(after=[chain]))) as naming:
        await_waiting(worker.conn, user.info.backend_pid)
        handler.execute("COMMIT")
        (waiter,) = naming.result(timeout=30)
    assert left(worker, waiter) == ("blocked", 1, None)
    drain(worker)
    assert statuses(worker.conn)[waiter] == "completed"


def test_naming_waits_for_a_chain_that_ends(worker: Worker, connect: Connect) -> None:
    (chain,) = enqueue(worker.conn, job())
    (claimed,) = worker.claim()
    handler, user = connect(), connect()
    handler.execute("BEGIN")
    run_sync(handler, complete_job(worker.id, Held(chain, claimed.token), "7"))
    with background(lambda: enqueue(user, job(after=[chain]))) as naming:
        await_waiting(worker.conn, user.info.backend_pid)
        handler.execute("COMMIT")
        (waiter,) = naming.result(timeout=30)
    assert left(worker, waiter) == ("pending", 0, None)


@pytest.mark.parametrize("named_before", [False, True], ids=["first to name it", "named before"])
def test_an_ending_sees_jobs_that_name_it_concurrently(worker: Worker, connect: Connect, named_before: bool) -> None:
    """A finish that comes while a transaction names the chain does not miss it, whichever way it takes."""
    (chain,) = enqueue(worker.conn, job())
    if named_before:
        enqueue(worker.conn, job(after=[chain], delay=timedelta(days=1)))
    claimed = worker.claim()
    user = connect()
    user.execute("BEGIN")
    (waiter,) = enqueue(user, job(after=[chain]))
    if named_before:
        assert worker.end(claimed) == {chain: "busy"}
    else:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            worker.end(claimed)
    assert worker.end(claimed, careful=True) == {chain: "busy"}
    user.execute("COMMIT")
    assert worker.end(claimed) == {chain: "completed"}
    assert left(worker, waiter) == ("pending", 0, None)


def test_a_locked_waiter_is_not_forgotten(worker: Worker, connect: Connect) -> None:
    chain, other = enqueue(worker.conn, job(), job())
    unique = Unique("u", on_conflict="replace")
    (waiter,) = enqueue(worker.conn, job(after=[chain], unique=unique))
    claimed = sorted(worker.claim())
    user = connect()
    user.execute("BEGIN")
    assert enqueue(user, job(after=[chain], unique=unique)) == [waiter]
    user.execute("COMMIT")
    user.execute("BEGIN")
    user.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [waiter])
    assert worker.end(claimed, careful=True) == {chain: "busy", other: "completed"}
    user.execute("COMMIT")
    assert worker.end(claimed[:1], careful=True) == {chain: "completed"}
    assert left(worker, waiter) == ("pending", 0, None)


def test_what_was_missed_is_repaired(worker: Worker) -> None:
    """It should never happen: here by hand."""
    done, gone, alive = enqueue(worker.conn, *[job()] * 3)
    waiter, other = enqueue(worker.conn, job(after=[done, alive]), job(after=[gone]))
    worker.conn.execute("UPDATE holdfast.job SET awaited = NULL WHERE id = %s", [done])
    worker.end(worker.claim(1), Completed("7"))
    worker.conn.execute("DELETE FROM holdfast.job WHERE id = %s", [gone])
    assert left(worker, waiter) == ("blocked", 2, None)
    since, repaired = 0, 0
    for _ in range(3):
        found = run_sync(worker.conn, repair_blockers(since=since, limit=1))
        since, repaired = found.until, repaired + found.rows
    assert (since, repaired) == (alive, 2)
    assert run_sync(worker.conn, repair_blockers(since=since)) == (0, 0)
    assert run_sync(worker.conn, repair_blockers()) == (0, 0)
    assert run_sync(worker.conn, release_waiters()) == 2
    assert left(worker, waiter) == ("blocked", 1, None)
    assert left(worker, other) == ("pending", 0, True)
    assert run_sync(worker.conn, read_blockers([other]))[other] == [Blocker(gone, "cancelled", None, "not_found", None)]


def test_released_and_retried_blockers_are_still_waited_for(worker: Worker) -> None:
    (chain,) = enqueue(worker.conn, job())
    (waiter,) = enqueue(worker.conn, job(after=[chain]))
    for outcome in (RELEASED, RETRIED):
        worker.end(worker.claim(), outcome)
        assert left(worker, waiter) == ("blocked", 1, None)
    assert run_sync(worker.conn, complete_chain(chain, "3")) == "completed"
    assert left(worker, waiter) == ("pending", 0, None)


def test_a_chain_does_not_wait_for_itself_through_an_order_key(worker: Worker) -> None:
    """A waiter keeps its place: what it waits for must not line up behind it."""
    (chain,) = enqueue(worker.conn, job())
    claimed = worker.claim()
    enqueue(worker.conn, job(after=[chain], order_key="a"))
    with pytest.raises(InvalidJob, match=f"chain {chain} would wait for itself"):
        worker.end(claimed, Completed(None, job(order_key="a").as_json()))
    assert worker.end(claimed, Completed(None, job(order_key="b").as_json())) == {chain: "completed"}


def test_a_replaced_job_does_not_wait_for_what_is_behind_it(worker: Worker) -> None:
    unique = Unique("u", on_conflict="replace")
    _, behind = enqueue(worker.conn, job(unique=unique, order_key="a"), job(order_key="a"))
    with pytest.raises(InvalidJob, match="would wait for itself"):
        enqueue(worker.conn, job(unique=unique, after=[behind]))


def test_a_job_is_due_from_the_moment_that_its_last_chain_has_ended(worker: Worker) -> None:
    """With an older time it would be below the floors of claims."""
    first, second = enqueue(worker.conn, job(), job())
    (waits,) = enqueue(worker.conn, job(after=[first, second]))
    worker.conn.execute("UPDATE holdfast.job SET available_at = now() - interval '1 hour'")
    due = "SELECT available_at > now() - interval '1 minute' FROM holdfast.job WHERE id = %s"
    for ends, is_due in zip(worker.claim(), (False, True), strict=True):
        worker.end([ends])
        assert number(worker.conn, due, waits) is is_due
