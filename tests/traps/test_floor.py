"""PROTOCOL, section 2: claims and reaps do not walk over what cannot be vacuumed, and yet find what comes late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._model.new_job import OrderKey
from holdfast._model.outcome import Released, Retried
from holdfast._model.retry import Retry
from holdfast._store.claim import REACHES, Floors, claim_jobs
from holdfast._store.enqueue import enqueue_jobs
from holdfast._store.lease import ReapFloor, reap_jobs
from tests.kit.mutation import open_trap
from tests.kit.plans import buffers
from tests.kit.sessions import held_snapshot
from tests.kit.workers import EVERYTHING, FAILURE, Worker, enqueue, expire_leases, fill, job, number

if TYPE_CHECKING:
    from psycopg import Connection

    from holdfast._model.outcome import Outcome
    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect

NARROW = REACHES[0]


def work_off(worker: Worker, floors: Floors, jobs: int) -> None:
    """Claim and complete, so that the front of the lane is made of dead entries."""
    left = jobs
    while left > 0:
        batch = worker.claim(500, floors=floors, reach=EVERYTHING)
        assert batch
        floors.advance(batch, reach=EVERYTHING, took=0)
        worker.end(batch)
        left -= len(batch)


def floor_at(conn: Connection[Any], seconds_ago: float, *, kind: str = "k", priority: int = 5) -> Floors:
    """Return floors as after a claim of a job that was due so long ago."""

    class Claimed:
        id = 0
        queue = "default"
        available_at: datetime = number(conn, "SELECT clock_timestamp()") - timedelta(seconds=seconds_ago)

    Claimed.kind, Claimed.priority = kind, priority  # type: ignore[attr-defined]
    floors = Floors()
    claimed: Any = Claimed
    floors.advance([claimed], reach=NARROW, took=0)
    return floors


def test_dead_entries_under_a_held_snapshot(connect: Connect) -> None:
    conn = connect()
    worker, floors = Worker(conn), Floors()
    with held_snapshot(connect()):
        fill(conn, 1)
        alone = buffers(conn, claim_jobs(worker.id, {"default": 1}, worker.leases, reach=NARROW))
        fill(conn, 6_000)
        work_off(worker, floors, 6_001)
        enqueue(conn, job())
        with_floor = claim_jobs(worker.id, {"default": 1}, worker.leases, floors=floors, reach=NARROW)
        assert buffers(conn, with_floor) <= 1.5 * alone
        without = claim_jobs(worker.id, {"default": 1}, worker.leases, floors=None, reach=NARROW)
        assert buffers(conn, without) > 5 * alone


def test_jobs_of_one_time_are_not_walked_over(connect: Connect) -> None:
    """Those of one bulk enqueue are due at the same moment: the floor is a time and an id."""
    conn = connect()
    worker, floors = Worker(conn), Floors()

    def cost() -> int:
        return buffers(conn, claim_jobs(worker.id, {"default": 1}, worker.leases, floors=floors, reach=NARROW))

    with held_snapshot(connect()):
        fill(conn, 6_000, available_at="now() - interval '1 second'")
        work_off(worker, floors, 500)
        alone = cost()
        work_off(worker, floors, 5_000)
        assert cost() <= 1.5 * alone
        open_trap(conn, "find_lanes", ("CASE WHEN reach = interval '0' THEN lane_ids[lane] ELSE 0 END", "0"))
        assert cost() > 3 * alone


def test_what_other_kinds_left_behind_is_not_walked_over(connect: Connect) -> None:
    conn = connect()
    worker, other, floors = Worker(conn, "a", "z"), Worker(conn, "m"), Floors()

    def cost() -> int:
        return buffers(conn, claim_jobs(worker.id, {"default": 1}, worker.leases, floors=floors, reach=NARROW))

    with held_snapshot(connect()):
        fill(conn, 20, kind="a")
        fill(conn, 20, kind="z")
        floors.advance(worker.claim(1), reach=NARROW, took=0)
        alone = cost()
        fill(conn, 5_000, kind="m")
        while other.end(other.claim(500)):
            pass
        assert cost() <= 1.5 * alone
        open_trap(
            conn,
            "find_lanes",
            ("by_kind := (last_queue - this_queue + 1) * cardinality(kinds) <= 100", "by_kind := false"),
        )
        assert cost() > 3 * alone


@pytest.mark.parametrize(("late", "reach"), [(0.2, REACHES[1]), (3, REACHES[2]), (30, REACHES[3]), (3_600, REACHES[4])])
def test_a_late_commit_is_found_by_the_tier_that_reaches_it(connect: Connect, late: float, reach: float) -> None:
    conn = connect()
    worker = Worker(conn)
    floors = floor_at(conn, 0)
    ((floor, _),) = floors._floors.values()
    (late_id,) = enqueue(conn, job())
    conn.execute("UPDATE holdfast.job SET available_at = %s - %s * interval '1 second'", [floor, late])
    for narrower in (tier for tier in REACHES if tier < reach):
        assert worker.claim(floors=floors, reach=narrower) == [], "a narrower look is cheap because it does not look"
    assert [claimed.id for claimed in worker.claim(floors=floors, reach=reach)] == [late_id]


def test_every_tier_has_its_turn_within_a_twentieth_of_the_time(connect: Connect) -> None:
    """Claims of 1 ms; a look at everything costs a second, at the last minute a tenth of that."""
    costs = dict(zip(REACHES, (0.001, 0.001, 0.002, 0.1, 1.0), strict=True))
    now = 0.0
    spent = dict.fromkeys(REACHES, 0.0)
    floors = Floors(clock=lambda: now)
    while now < 200:
        reach = floors.reach()
        now += costs[reach]
        spent[reach] += costs[reach]
        floors.advance([], reach=reach, took=costs[reach])
        now += 0.01
    assert all(spent[reach] > 0 for reach in (REACHES[0], REACHES[-1]))
    for reach in REACHES[1:]:
        assert spent[reach] <= 200 / 20 + costs[reach]


def test_a_floor_ahead_of_the_clock_is_ignored(connect: Connect) -> None:
    conn = connect()
    worker = Worker(conn)
    ahead = floor_at(conn, -3_600)
    enqueue(conn, job())
    assert len(worker.claim(floors=ahead, reach=NARROW)) == 1
    enqueue(conn, job())
    open_trap(conn, "claim_floor", ("(last <= now())", "true"))
    assert worker.claim(floors=ahead, reach=NARROW) == []


def test_floors_are_dropped_with_the_connection(connect: Connect) -> None:
    """After a failover the clock may be behind: floors of the old server would hide what the new one has."""
    conn = connect()
    worker = Worker(conn)
    floors = floor_at(conn, 0)
    enqueue(conn, job())
    conn.execute("UPDATE holdfast.job SET available_at = available_at - interval '1 minute'")
    assert worker.claim(floors=floors, reach=NARROW) == []
    floors.drop()
    assert floors.reach() == REACHES[-1]
    assert len(worker.claim(floors=floors, reach=NARROW)) == 1


def back_for_a_narrow_look(connect: Connect, outcome: Outcome) -> list[ClaimedJob]:
    """Return what a narrow look finds after a job that was due an hour ago has come back."""
    conn = connect()
    worker = Worker(conn)
    enqueue(conn, job())
    conn.execute("UPDATE holdfast.job SET available_at = available_at - interval '1 hour'")
    claimed = worker.claim()
    floors = floor_at(conn, 0)
    assert worker.end(claimed, outcome)[claimed[0].id] == "pending"
    found = worker.claim(floors=floors, reach=NARROW)
    conn.execute("TRUNCATE holdfast.job")
    return found


@pytest.mark.parametrize(
    "outcome", [Released(), Released(timedelta(seconds=-60)), Retried(timedelta(0), FAILURE)], ids=str
)
def test_what_comes_back_is_never_due_in_the_past(connect: Connect, outcome: Outcome) -> None:
    assert len(back_for_a_narrow_look(connect, outcome)) == 1
    open_trap(
        connect(),
        "give_back_jobs",
        ("available_at = holdfast.due_at(s.at, s.delay_ms, clock)", "available_at = j.available_at"),
    )
    assert back_for_a_narrow_look(connect, outcome) == []


def test_what_is_promoted_is_never_due_in_the_past(connect: Connect) -> None:
    def promoted() -> int:
        conn = connect()
        worker = Worker(conn)
        enqueue(conn, *[job(order_key=OrderKey("a")) for _ in range(2)])
        conn.execute("UPDATE holdfast.job SET available_at = available_at - interval '1 hour'")
        claimed, floors = worker.claim(), floor_at(conn, 0)
        worker.end(claimed)
        found = worker.claim(floors=floors, reach=NARROW)
        conn.execute("TRUNCATE holdfast.job")
        return len(found)

    assert promoted() == 1
    open_trap(
        connect(), "settle_batch", ("available_at = greatest(j.available_at, clock)", "available_at = j.available_at")
    )
    assert promoted() == 0


def test_a_long_transaction_enqueues_at_the_time_of_its_insert(connect: Connect) -> None:
    def found() -> int:
        conn, user = connect(), connect()
        worker = Worker(conn)
        with user.transaction():
            user.execute("SELECT pg_sleep(0.3)")  # the passing of time itself is what is tested
            floors = floor_at(conn, 0)
            run_sync(user, enqueue_jobs([job()]))
        jobs = worker.claim(floors=floors, reach=NARROW)
        conn.execute("TRUNCATE holdfast.job")
        return len(jobs)

    assert found() == 1
    open_trap(connect(), "enqueue_jobs", ("clock timestamptz := clock_timestamp()", "clock timestamptz := now()"))
    assert found() == 0


def test_one_worker_of_the_cluster_sweeps(connect: Connect) -> None:
    """While one looks at everything, the others look back five seconds; and for a while after a sweep that was slow."""

    # A sweep is called slow, and leaves a note, after 50 ms: on a busy machine any is.
    open_trap(connect(), "claim_jobs", ("interval '50 milliseconds'", "interval '1 hour'"))

    def found_beside_a_sweep() -> int:
        conn, other = connect(), connect()
        first, second = Worker(conn), Worker(other)
        enqueue(conn, job("unserved"))
        with conn.transaction():
            first.claim(floors=floor_at(conn, 0), reach=EVERYTHING)
            (old,) = enqueue(other, job())
            other.execute(
                "UPDATE holdfast.job SET available_at = available_at - interval '1 hour' WHERE id = %s", [old]
            )
            beside = second.claim(floors=floor_at(other, 0), reach=EVERYTHING)
        if not beside:
            assert len(second.claim(floors=floor_at(other, 0), reach=EVERYTHING)) == 1
        return len(beside)

    assert found_beside_a_sweep() == 0
    conn = connect()
    worker = Worker(conn)
    (old,) = enqueue(conn, job())
    conn.execute("UPDATE holdfast.job SET available_at = available_at - interval '1 hour' WHERE id = %s", [old])
    conn.execute("INSERT INTO holdfast.sweep VALUES (now() + interval '1 minute', '315360000 seconds')")
    assert worker.claim(floors=floor_at(conn, 0), reach=EVERYTHING) == []
    conn.execute("UPDATE holdfast.sweep SET until = now() - interval '1 second'")
    assert len(worker.claim(floors=floor_at(conn, 0), reach=EVERYTHING)) == 1

    open_trap(
        conn,
        "claim_jobs",
        ("AND pg_try_advisory_xact_lock(hashtext('holdfast.sweep'), extract(epoch FROM reach)::integer)", ""),
    )
    assert found_beside_a_sweep() == 1


def test_the_reaper_does_not_walk_over_dead_leases(connect: Connect) -> None:
    conn = connect()
    worker, floor = Worker(conn), ReapFloor()
    with held_snapshot(connect()):
        # Leases that have ended, all of jobs that have ended too.
        fill(conn, 2_000)
        claimed = [job for _ in range(4) for job in worker.claim(500)]
        expire_leases(conn, claimed, seconds=600)
        worker.end(claimed)
        now: datetime = number(conn, "SELECT clock_timestamp()")
        floor.advance(now.astimezone(UTC), whole=True, took=0)
        narrow = reap_jobs({"k": Retry()}, since=floor.since())
        assert buffers(conn, narrow) <= 20
        # The trap: a pass that begins at the first lease of all.
        assert buffers(conn, reap_jobs({"k": Retry()})) > 10 * buffers(conn, narrow)
