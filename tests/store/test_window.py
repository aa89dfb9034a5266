"""Claims beside each other: each holds the windows that it looks into."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._drivers import run_sync
from holdfast._store import claim as window
from holdfast._store.claim import (
    FRUITLESS,
    REACHES,
    SHARDS,
    STEPS_AT_MOST,
    WHOLE,
    WINDOWS,
    WITHOUT,
    Claim,
    Floors,
    Lane,
    Shards,
    Windows,
    claim_jobs,
)
from tests.kit.workers import Worker, enqueue, fill, job, number

if TYPE_CHECKING:
    from psycopg import Connection

    from tests.kit.workers import Connect

ALL = set(range(WINDOWS))


def claim(
    worker: Worker, windows: Windows, slots: int = 1_000, *, shards: Shards = WHOLE, floors: Floors | None = None
) -> Claim:
    return run_sync(
        worker.conn,
        claim_jobs(
            worker.id,
            dict.fromkeys(worker.queues, slots),
            worker.leases,
            windows=windows,
            shards=shards,
            floors=floors,
        ),
    )


def seen(conn: Connection[Any], claimed: Claim) -> set[int]:
    """Return the windows that these jobs are of."""
    ids = [one.id for one in claimed.jobs]
    rows = conn.execute("SELECT DISTINCT shard / 8 FROM holdfast.job WHERE id = ANY (%s)", [ids]).fetchall()
    return {row[0] for row in rows}


def held(conn: Connection[Any]) -> list[int]:
    """Return the windows that this session holds, one for each lock."""
    rows = conn.execute(
        "SELECT objid::integer FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted"
    ).fetchall()
    return sorted(row[0] for row in rows)


def test_nothing_due_takes_no_lock(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job(delay=timedelta(hours=1)))
    with worker.conn.transaction():
        assert claim(worker, Windows()).crowded is None
        assert held(worker.conn) == []


def test_alone_a_claim_sees_everything_in_its_order(connect: Connect) -> None:
    worker = Worker(connect())
    fill(worker.conn, 200)
    oldest = worker.conn.execute("SELECT id FROM holdfast.job ORDER BY available_at LIMIT 50").fetchall()
    with worker.conn.transaction():
        found = claim(worker, Windows(), 50)
        assert held(worker.conn) == [WINDOWS], "one lock for all"
    assert {one.id for one in found.jobs} == {row[0] for row in oldest}
    assert (found.crowded, found.again, found.begins) == (False, False, {})


def test_two_claims_at_once_see_different_windows(connect: Connect) -> None:
    one, other = Worker(connect()), Worker(connect())
    fill(one.conn, 640)
    with one.conn.transaction():
        first = claim(one, Windows(2, 2), 10)
        assert seen(one.conn, first) == {2, 3}
        with other.conn.transaction():
            second = claim(other, Windows(), 1_000)
            assert held(other.conn) == sorted(ALL - {2, 3} | {WINDOWS})
    assert seen(one.conn, second) == ALL - {2, 3}
    assert len(second.jobs) == 640 * 6 // 8
    assert (second.crowded, second.again) == (True, True), "the others' windows hold more that is due"
    third = claim(other, Windows())
    assert (len(third.jobs), third.again) == (150, False)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("shard", [0, 7, 8, 40, 63])
def test_a_job_in_any_window_is_found_at_once(connect: Connect, width: int, shard: int) -> None:
    worker = Worker(connect())
    fill(worker.conn, 1, shard=str(shard))
    found = claim(worker, Windows(width, 0))
    assert (len(found.jobs), found.again) == (1, False)


@pytest.mark.parametrize("urgent", range(0, SHARDS, 9))
def test_what_is_urgent_comes_first_though_it_is_in_another_window(connect: Connect, urgent: int) -> None:
    worker = Worker(connect())
    fill(worker.conn, 640)
    fill(worker.conn, 1, priority="0", shard=str(urgent), available_at="now()")
    assert claim(worker, Windows(1, 0), 5).jobs[0].priority == 0


def test_a_claim_waits_only_a_moment_and_says_that_more_may_be_due(connect: Connect) -> None:
    """No worker falls asleep while work is due, and none waits for ever for a session that locks the windows."""
    one, other = Worker(connect()), Worker(connect())
    fill(one.conn, 20)
    windows = Windows()
    with one.conn.transaction():
        assert len(claim(one, Windows(), 10).jobs) == 10
        for _ in range(FRUITLESS):
            found = claim(other, windows)
            assert (found.jobs, found.again, found.crowded) == ([], True, True)
            assert 0 < windows.learn(found) <= window.PAUSE[1]
        assert windows.asked() == (0, 0)
        assert len(claim(other, windows).jobs) == 10


def test_a_window_that_comes_free_is_waited_for(connect: Connect) -> None:
    worker, keeper = Worker(connect()), connect()
    fill(worker.conn, 64)
    for number_ in ALL:
        keeper.execute("SELECT pg_advisory_lock(hashtext('holdfast.claim default'), %s)", [number_])
    # The wait itself is what gives it back.
    worker.conn.execute(
        "CREATE OR REPLACE FUNCTION holdfast.wait_for_window(queue_hash integer, number integer) RETURNS boolean "
        "LANGUAGE plpgsql AS $$ BEGIN RETURN number = 5; END $$"
    )
    found = claim(worker, Windows(1, 5))
    assert seen(worker.conn, found) == {5}
    assert (found.crowded, found.again) == (True, True)


@pytest.mark.parametrize(
    ("shards", "windows"),
    [(Shards(1, 4), {2, 3}), (Shards(5, 64), {0}), (Shards(1, 3), {2, 3, 4, 5}), (Shards(0, 1), ALL)],
    ids=str,
)
@pytest.mark.parametrize("width", [1, 8])
def test_windows_are_cut_to_the_shards_of_a_worker(
    connect: Connect, shards: Shards, windows: set[int], width: int
) -> None:
    worker = Worker(connect())
    fill(worker.conn, 640)
    with worker.conn.transaction():
        found = claim(worker, Windows(width, 6), shards=shards)
        assert set(held(worker.conn)) == (windows | {WINDOWS} if width == 1 or windows != ALL else {WINDOWS})
    rows = worker.conn.execute("SELECT DISTINCT shard FROM holdfast.job WHERE status = 'processing'").fetchall()
    assert {row[0] for row in rows} == set(range(shards.first, shards.last + 1))
    assert not found.again


def test_one_call_takes_few_locks_however_many_queues_are_due(connect: Connect) -> None:
    """They fill a table that all sessions share."""
    queues = [f"q{n:02}" for n in range(40)]
    worker = Worker(connect(), queues=queues)
    for queue in queues:
        fill(worker.conn, 16, queue=queue)
    with worker.conn.transaction():
        found = claim(worker, Windows(4, 0))
        assert 48 <= len(held(worker.conn)) <= 64
    assert (len(found.jobs), found.again) == (16 * len(queues), False)


def test_alone_in_many_queues_a_claim_takes_few_locks(connect: Connect) -> None:
    queues = [f"q{n:02}" for n in range(80)]
    worker = Worker(connect(), queues=queues)
    for queue in queues:
        fill(worker.conn, 64, queue=queue)
    with worker.conn.transaction():
        assert len(claim(worker, Windows(), 2).jobs) == 2 * len(queues)
        assert len(held(worker.conn)) <= 64


def test_holders_of_windows_do_not_wait(connect: Connect) -> None:
    """Two that hold one queue's windows and wait for the other's would wait for each other."""
    worker, keeper = Worker(connect(), queues=["a", "b"]), connect()
    for queue in worker.queues:
        fill(keeper, 64, queue=queue)
    keeper.execute("SELECT pg_advisory_lock(hashtext('holdfast.claim b'), %s)", [WINDOWS])
    worker.conn.execute(
        "CREATE OR REPLACE FUNCTION holdfast.wait_for_window(queue_hash integer, number integer) RETURNS boolean "
        "LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'it waits'; END $$"
    )
    found = claim(worker, Windows(), 10)
    assert ([one.queue for one in found.jobs], found.again) == (["a"] * 10, True)


@pytest.mark.parametrize("reach", [0.0, REACHES[-1]])
def test_a_floor_stays_below_what_a_claim_did_not_see(connect: Connect, reach: float) -> None:
    worker = Worker(connect())
    # The oldest are in the last window.
    fill(worker.conn, 800, shard="n & 63", available_at="now() - (n & 63) * interval '1 minute'")
    first = number(worker.conn, "SELECT id FROM holdfast.job ORDER BY available_at, id LIMIT 1")
    floors, lane = Floors(), Lane("default", "k", 5)
    found = claim(worker, Windows(1, 0), 10)
    assert seen(worker.conn, found) == {0}
    assert found.begins == {
        lane: (number(worker.conn, f"SELECT available_at FROM holdfast.job WHERE id = {first}"), first)
    }
    floors.advance(found.jobs, reach=reach, took=0.001, begins=found.begins)
    assert first in [one.id for one in claim(worker, Windows(), 10, floors=floors).jobs]


def test_a_lane_that_was_seen_whole_says_nothing_of_its_begin(connect: Connect) -> None:
    worker = Worker(connect(), "k", "m")
    fill(worker.conn, 64)
    fill(worker.conn, 64, kind="m")
    assert set(claim(worker, Windows(4, 4), 10).begins) == {Lane("default", kind, 5) for kind in "km"}
    assert claim(worker, Windows(), 10).begins == {}


def some(jobs: int, *, crowded: bool | None = False, again: bool = False) -> Claim:
    listed: list[Any] = [None] * jobs
    return Claim(listed, again, crowded=crowded)


@given(st.lists(st.booleans(), min_size=8, max_size=40), st.integers(0, 7))
def test_every_window_is_asked_for_within_eight_claims(met: list[bool], first: int) -> None:
    windows = Windows(1, first)
    asked: list[set[int]] = []
    for crowded in met:
        width, begin = windows.asked()
        assert begin % width == 0
        assert begin + width <= WINDOWS
        asked.append(set(range(begin, begin + width)))
        assert windows.learn(some(1, crowded=crowded)) == 0
    for begin in range(len(asked) - 7):
        assert set[int]().union(*asked[begin : begin + 8]) == ALL


def test_claims_ask_for_fewer_jobs_only_under_contention() -> None:
    windows = Windows()
    widths = []
    for crowded in [True] * 4 + [None] + [False] * 4:
        windows.learn(some(1, crowded=crowded))
        widths.append(windows.asked()[0])
    assert widths == [4, 2, 1, 1, 1, 2, 4, 8, 8]


def test_a_claim_works_without_locked_windows() -> None:
    windows = Windows()
    for _ in range(FRUITLESS - 1):
        windows.learn(some(0, crowded=True, again=True))
    assert windows.learn(some(1, crowded=True, again=True)) == 0
    assert windows.asked()[0] == 1
    for _ in range(FRUITLESS):
        windows.learn(some(0, crowded=True, again=True))
    for _ in range(WITHOUT):
        assert windows.asked()[0] == 0
        windows.learn(some(1, crowded=None))
    assert windows.asked()[0] == 1


def test_a_locked_job_does_not_hold_the_floor_for_ever() -> None:
    class Taken:
        queue, kind, priority, id = "q", "k", 5, 100

    from datetime import UTC, datetime

    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    lane, floors = Lane("q", "k", 5), Floors()
    taken: Any = Taken()
    taken.available_at = noon + timedelta(minutes=1)

    def floor() -> object:
        return dict(floors.lanes(REACHES[0], ["q"], None))[lane]

    for _ in range(STEPS_AT_MOST):
        floors.advance([taken], reach=0, took=0.001, begins={lane: (noon, 7)})
        assert floor() == (noon, 6)
    floors.advance([taken], reach=0, took=0.001, begins={lane: (noon, 7)})
    assert floor() == (noon + timedelta(minutes=1), 100)
    # Another is another; and a claim that saw all of it forgets it.
    floors.advance([taken], reach=0, took=0.001, begins={lane: (noon, 8)})
    assert floor() == (noon, 7)
    floors.advance([taken], reach=0, took=0.001)
    floors.advance([taken], reach=0, took=0.001, begins={lane: (noon, 7)})
    assert floor() == (noon, 6)
