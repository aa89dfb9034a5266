"""Scheduled jobs stand apart from the lanes, and are promoted when their time has come."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._model.outcome import Completed, Released, Rescheduled, Retried
from holdfast._model.unique import Unique
from holdfast._store.claim import REACHES, Floors, claim_jobs
from holdfast._store.sleeper import look_ahead, record_sleep, worker_channel
from tests.kit.plans import buffers
from tests.kit.sessions import held_snapshot
from tests.kit.workers import FAILURE, Worker, enqueue, fill, job, number, pass_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import Connection

    from holdfast._store.claim import Claim
    from tests.kit.workers import Connect

HOUR = timedelta(hours=1)
NARROW = REACHES[0]
TOMORROW = "now() + interval '1 day' + n * interval '1 millisecond'"
# As if they had been scheduled an hour ago, and were due two seconds ago or a moment ago.
PAST = {"later": "true", "available_at": "now() - interval '3 seconds'"}
JUST_NOW = {"later": "true", "available_at": "now() - interval '10 milliseconds'"}


def apart(conn: Connection[Any]) -> int:
    return int(number(conn, "SELECT count(*) FROM holdfast.job WHERE later AND status = 'pending'"))


def narrow(worker: Worker, floors: Floors, slots: int = 100) -> Claim:
    """Claim as a worker does whose looks are all narrow."""
    statement = claim_jobs(worker.id, {"default": slots}, worker.leases, floors=floors, reach=NARROW)
    claim = run_sync(worker.conn, statement)
    floors.advance(claim.jobs, reach=NARROW, took=0, promoted=claim.promoted)
    return claim


def retry(worker: Worker) -> None:
    enqueue(worker.conn, job())
    worker.end(worker.claim(), Retried(HOUR, FAILURE))


def reschedule(worker: Worker) -> None:
    enqueue(worker.conn, job())
    worker.end(worker.claim(), Rescheduled(HOUR))


def release(worker: Worker) -> None:
    enqueue(worker.conn, job())
    worker.end(worker.claim(), Released(HOUR))


def go_on(worker: Worker) -> None:
    enqueue(worker.conn, job())
    worker.end(worker.claim(), Completed(None, job(delay=HOUR).as_json()))


def replace(worker: Worker) -> None:
    enqueue(worker.conn, job(unique=Unique("u")))
    worker.conn.execute("SELECT holdfast.enqueue('k', unique_key => 'u', on_conflict => 'replace', delay => '1 hour')")


def debounce(worker: Worker) -> None:
    enqueue(worker.conn, job(unique=Unique("u")))
    worker.conn.execute("SELECT holdfast.enqueue('k', unique_key => 'u', on_conflict => 'debounce', delay => '1 hour')")


def by_hand(worker: Worker) -> None:
    (waiting,) = enqueue(worker.conn, job())
    worker.conn.execute("SELECT holdfast.reschedule_job(%s, now() + interval '1 hour')", [waiting])


def after_a_chain(worker: Worker) -> None:
    (first,) = enqueue(worker.conn, job())
    worker.conn.execute("SELECT holdfast.enqueue('k', blockers => ARRAY[%s], delay => '1 hour')", [first])
    assert apart(worker.conn) == 0
    worker.end(worker.claim())


def in_an_order_key(worker: Worker) -> None:
    worker.conn.execute("SELECT holdfast.enqueue('k', order_key => 'o')")
    worker.conn.execute("SELECT holdfast.enqueue('k', order_key => 'o', delay => '1 hour')")
    worker.end(worker.claim())


WAYS: dict[str, Callable[[Worker], object]] = {
    "enqueue": lambda worker: worker.conn.execute("SELECT holdfast.enqueue('k', delay => '1 hour')"),
    "enqueue, at": lambda worker: worker.conn.execute("SELECT holdfast.enqueue('k', at => now() + interval '1 hour')"),
    "enqueue_jobs": lambda worker: enqueue(worker.conn, job(delay=HOUR)),
    "enqueue, unique": lambda worker: enqueue(worker.conn, job(delay=HOUR, unique=Unique("u"))),
    "replace": replace,
    "debounce": debounce,
    "retry": retry,
    "reschedule": reschedule,
    "release": release,
    "next in a chain": go_on,
    "reschedule_job": by_hand,
    "after a chain": after_a_chain,
    "in an order key": in_an_order_key,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_whatever_puts_a_job_off_sets_it_apart(connect: Connect, way: Callable[[Worker], object]) -> None:
    worker = Worker(connect())
    way(worker)
    assert apart(worker.conn) == 1
    claim = narrow(worker, Floors())
    assert claim.jobs == []
    assert claim.next_due == pytest.approx(3600, abs=60)
    ahead = run_sync(worker.conn, look_ahead(worker.id)).next_due
    assert ahead is not None
    assert abs(ahead - HOUR) < timedelta(minutes=1)
    pass_time(worker.conn, 3601)
    assert len(worker.claim()) == 1
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job WHERE later") == 0


@pytest.mark.parametrize("outcome", [Retried(timedelta(0), FAILURE), Rescheduled(timedelta(0)), Released()])
def test_what_is_given_back_at_once_is_not_set_apart(connect: Connect, outcome: Any) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job(delay=HOUR))
    pass_time(worker.conn, 3601)
    worker.end(worker.claim(), outcome)
    assert apart(worker.conn) == 0
    assert len(worker.claim()) == 1


def test_what_is_cancelled_or_due_by_hand_need_not_be_promoted(connect: Connect) -> None:
    worker = Worker(connect())
    first = number(worker.conn, "SELECT holdfast.enqueue('k', order_key => 'o', delay => '1 hour')")
    second = number(worker.conn, "SELECT holdfast.enqueue('k', delay => '1 hour')")
    worker.conn.execute("SELECT holdfast.cancel_job(%s)", [first])
    worker.conn.execute("SELECT holdfast.reschedule_job(%s, now())", [second])
    assert apart(worker.conn) == 0
    assert {claimed.id for claimed in worker.claim()} == {first, second}


def test_the_flag_decides_nothing(connect: Connect) -> None:
    """Without it a job for tomorrow is met in its lane; with it a job that is due is promoted."""
    worker = Worker(connect())
    fill(worker.conn, 1, available_at=TOMORROW)
    claim = narrow(worker, Floors())
    assert claim.jobs == []
    assert claim.next_due == pytest.approx(86_400, abs=60)
    worker.conn.execute("UPDATE holdfast.job SET available_at = now()")
    assert len(narrow(worker, Floors()).jobs) == 1
    fill(worker.conn, 1, later="true")
    assert len(narrow(worker, Floors()).jobs) == 1


def test_of_jobs_that_fall_due_together_the_most_urgent_is_first(connect: Connect) -> None:
    worker = Worker(connect())
    fill(worker.conn, 1_000, priority="9 - n % 10", **PAST)
    claims = [narrow(worker, floors := Floors(), 100).jobs] + [narrow(worker, floors, 100).jobs for _ in range(9)]
    assert [claimed.priority for jobs in claims for claimed in jobs] == [n // 100 for n in range(1_000)]


def test_a_claim_gets_as_many_of_a_flood_as_it_asks_for(connect: Connect) -> None:
    """All fall due at one moment, and fresh ones come between."""
    worker, floors = Worker(connect()), Floors()
    fill(worker.conn, 2_500, **PAST)
    taken: set[int] = set()
    for _ in range(6):
        enqueue(worker.conn, job())
        claim = narrow(worker, floors, 600)
        taken |= {claimed.id for claimed in claim.jobs}
    assert len(taken) == 2_506
    assert claim.next_due is None or claim.jobs


def test_a_flood_of_other_kinds_is_worked_through(connect: Connect) -> None:
    worker, floors = Worker(connect()), Floors()
    fill(worker.conn, 1_200, kind="foreign", **PAST)
    fill(worker.conn, 1, **PAST)
    claims = [narrow(worker, floors, 10) for _ in range(3)]
    assert [(len(claim.jobs), claim.again) for claim in claims] == [(0, True), (0, True), (1, False)]


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
def test_two_claimers_at_once(connect: Connect, ending: str) -> None:
    """The second leaves the promotion to the first, asks again soon, and its floors let nothing pass."""
    first, second, floors = Worker(connect()), Worker(connect()), Floors()
    fill(first.conn, 10, **JUST_NOW)
    enqueue(first.conn, job())
    first.conn.execute("BEGIN")
    assert len(first.claim(1)) == 1
    found = narrow(second, floors)
    assert len(found.jobs) <= 1, "at most the one that was never scheduled"
    if not found.jobs:
        found = narrow(second, floors)
    again = narrow(second, floors)
    assert again.jobs == []
    assert again.next_due is not None
    assert again.next_due < 0.1
    first.conn.execute(ending.encode())
    assert len(narrow(second, floors).jobs) + len(found.jobs) == (10 if ending == "COMMIT" else 11)


def test_a_stuck_claimer_delays_others_only_briefly(connect: Connect) -> None:
    first, second, floors = Worker(connect()), Worker(connect()), Floors()
    fill(first.conn, 600, **PAST)
    first.conn.execute("BEGIN")
    assert len(first.claim(10)) == 10
    # The first has promoted 500 of them.
    assert len(narrow(second, floors, 1_000).jobs) == 100
    waits = narrow(second, floors, 1_000)
    assert waits.jobs == []
    assert waits.next_due is not None
    assert 0.5 < waits.next_due <= 1
    first.conn.execute("ROLLBACK")
    assert len(narrow(second, floors, 1_000).jobs) == 500


def test_a_worker_that_serves_a_promoted_job_is_woken(connect: Connect) -> None:
    foreign, worker = Worker(connect(), "foreign"), Worker(connect(), "k", "m")
    worker.conn.execute(f"LISTEN {worker_channel(worker.id)}".encode())
    run_sync(worker.conn, record_sleep(worker.id, worker.queues, worker.leases))
    fill(foreign.conn, 1, kind="foreign", **PAST)
    foreign.claim()
    worker.conn.execute("SELECT 1")
    assert list(worker.conn.notifies(timeout=0)) == [], "what was promoted was taken"
    fill(foreign.conn, 1, **PAST)
    foreign.claim()
    worker.conn.execute("SELECT 1")
    assert [note.payload for note in worker.conn.notifies(timeout=5, stop_after=1)] == ["default"]


def test_scheduled_jobs_of_other_workers_wake_no_worker(connect: Connect) -> None:
    worker = Worker(connect())
    due = "now() + 2 * interval '1 second' + n * interval '100 milliseconds'"
    fill(worker.conn, 90, kind="foreign", later="true", available_at=due)
    assert narrow(worker, Floors()).next_due is None
    fill(worker.conn, 1, later="true", available_at="now() + interval '10 seconds'")
    assert narrow(worker, Floors()).next_due == pytest.approx(10, abs=1)
    fill(worker.conn, 100, kind="foreign", later="true", available_at=due)
    # It passes over a hundred of them, and looks again when that one is due.
    assert narrow(worker, Floors()).next_due == pytest.approx(7, abs=1)


def test_dead_entries_of_promoted_jobs_are_not_walked_over(connect: Connect) -> None:
    worker, floors = Worker(connect()), Floors()
    fill(worker.conn, 3_000, **PAST)
    with held_snapshot(connect()):
        while jobs := narrow(worker, floors, 1_000).jobs:
            worker.end(jobs)
        claim = claim_jobs(worker.id, {"default": 10}, worker.leases, floors=floors, reach=NARROW)
        everything = claim_jobs(worker.id, {"default": 10}, worker.leases, floors=Floors(), reach=REACHES[-1])
        assert buffers(worker.conn, claim) * 5 < buffers(worker.conn, everything)
