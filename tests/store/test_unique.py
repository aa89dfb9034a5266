from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, time, timedelta
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._model.errors import DuplicateJob
from holdfast._model.new_job import Envelope, NewJob
from holdfast._model.unique import Unique
from holdfast._store.enqueue import enqueue_jobs
from holdfast._store.search import cancel_job
from tests.kit.sessions import add_gate, await_waiting, background, held_at_gate
from tests.kit.workers import COMPLETED, RETRIED, Worker, drain, job, number, statuses

if TYPE_CHECKING:
    from psycopg import Connection

    from holdfast._model.handle import Handle
    from holdfast._model.unique import OnConflict
    from tests.kit.workers import Connect

DAY = timedelta(days=1)
# Windows lie end to end: the longer, the less likely that a test runs across the end of one.
WINDOW = timedelta(days=31)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
THREADS = 8
POLICIES: list[OnConflict] = ["keep", "replace", "debounce", "raise"]


def put(conn: Connection[Any], n: int = 0, **options: Any) -> Handle[Any]:
    """Enqueue one job whose payload is {"n": n}."""
    unique = {name: options.pop(name) for name in ("window", "on_conflict") if name in options}
    key = Unique(options.pop("key", "a"), **unique)
    new = job(options.pop("kind", "k"), json.dumps({"n": n}), unique=key, **options)
    return run_sync(conn, enqueue_jobs([new]))[0]


def payloads(conn: Connection[Any]) -> dict[int, int]:
    return dict(conn.execute("SELECT id, (payload->>'n')::int FROM holdfast.job").fetchall())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("window", [None, WINDOW], ids=["live", "window"])
def test_one_of_many_threads_creates(connect: Connect, policy: OnConflict, window: timedelta | None) -> None:
    conns = [connect() for _ in range(THREADS)]
    for turn in range(5):
        barrier = Barrier(THREADS)

        def race(n: int, *, barrier: Barrier = barrier, turn: int = turn) -> Handle[Any] | DuplicateJob:
            barrier.wait(timeout=30)
            try:
                return put(conns[n], n, key=f"key {turn}", on_conflict=policy, window=window)
            except DuplicateJob as duplicate:
                return duplicate

        with ThreadPoolExecutor(THREADS) as pool:
            results = list(pool.map(race, range(THREADS)))
        handles = [result for result in results if not isinstance(result, DuplicateJob)]
        (created,) = [handle for handle in handles if handle.created]
        assert {handle.id for handle in handles} == {created.id}
        losers = [result for result in results if isinstance(result, DuplicateJob)]
        assert len(losers) == (THREADS - 1 if policy == "raise" else 0)
        assert {loser.existing_id for loser in losers} <= {created.id}
    assert number(conns[0], "SELECT count(*) FROM holdfast.job") == 5


def test_another_kind_is_another_key(connect: Connect) -> None:
    conn = connect()
    assert [put(conn, kind=kind).created for kind in ("k", "m", "k")] == [True, True, False]


def test_keep(connect: Connect) -> None:
    conn = connect()
    first, second = put(conn, 1), put(conn, 2, delay=DAY)
    assert (first.created, second.created, second.id) == (True, False, first.id)
    assert payloads(conn) == {first.id: 1}


def test_replace_keeps_the_id_and_starts_again(connect: Connect) -> None:
    conn = connect()
    worker = Worker(conn)
    first = put(conn, 1, priority=3)
    worker.end(worker.claim(), RETRIED)
    second = put(conn, 2, on_conflict="replace", priority=1, queue="other", headers={"a": "b"}, max_attempts=7)
    assert (second.id, second.created) == (first.id, False)
    columns = "payload::text, priority, queue, headers::text, max_attempts, attempt, last_error, status::text"
    row = conn.execute(f"SELECT {columns} FROM holdfast.job".encode()).fetchone()
    assert row == ('{"n": 2}', 1, "other", '{"a":"b"}', 7, 0, None, "pending")


def test_debounce_moves_the_time_only(connect: Connect) -> None:
    conn = connect()
    first = put(conn, 1, delay=timedelta(seconds=10))
    due = number(conn, "SELECT available_at FROM holdfast.job")
    second = put(conn, 2, on_conflict="debounce", delay=timedelta(seconds=60))
    assert second.id == first.id
    assert payloads(conn) == {first.id: 1}
    assert number(conn, "SELECT available_at FROM holdfast.job") - due > timedelta(seconds=49)


def test_raise_carries_the_id(connect: Connect) -> None:
    conn = connect()
    first = put(conn, 1)
    with pytest.raises(DuplicateJob) as caught:
        put(conn, 2, on_conflict="raise")
    assert caught.value.existing_id == first.id
    assert payloads(conn) == {first.id: 1}


@pytest.mark.parametrize("policy", ["replace", "debounce"])
def test_a_running_job_gets_a_successor(connect: Connect, policy: OnConflict) -> None:
    conn = connect()
    worker = Worker(conn)
    first = put(conn, 1)
    running = worker.claim()
    second, third = (put(conn, n, on_conflict=policy) for n in (2, 3))
    assert (second.created, third.created, third.id) == (True, False, second.id)
    assert payloads(conn) == {first.id: 1, second.id: 3 if policy == "replace" else 2}
    assert worker.end(running) == {first.id: "completed"}
    assert drain(worker) == [second.id]


@pytest.mark.parametrize("policy", ["replace", "debounce"])
def test_a_job_that_is_just_being_claimed_gets_a_successor(connect: Connect, policy: OnConflict) -> None:
    """The claim commits while the enqueue waits for the row: nothing new may get lost in a job that already runs."""
    conn, user = connect(), connect()
    worker = Worker(conn)
    first = put(conn, 1)
    conn.execute("BEGIN")
    assert len(worker.claim()) == 1
    with background(lambda: put(user, 2, on_conflict=policy)) as call:
        try:
            await_waiting(conn, user.info.backend_pid)
        finally:
            conn.execute("COMMIT")
        second = call.result(timeout=30)
    assert (second.created, second.id != first.id) == (True, True)
    assert payloads(conn) == {first.id: 1, second.id: 2}


@pytest.mark.parametrize("policy", ["replace", "debounce"])
def test_a_claim_that_comes_between_the_statements(connect: Connect, policy: OnConflict) -> None:
    """When the insert has seen the key taken: either the job cannot be claimed any more, or it gets a successor."""
    conn, user = connect(), connect()
    worker = Worker(conn)
    first = put(conn, 1)
    add_gate(conn, event="UPDATE")
    results: list[Handle[Any]] = []
    with held_at_gate(conn, user, lambda: results.append(put(user, 2, on_conflict=policy))):
        claimed = worker.claim()
    (second,) = results
    if claimed:
        assert payloads(conn) == {first.id: 1, second.id: 2}
    else:
        assert second.id == first.id
        assert payloads(conn) == {first.id: 2 if policy == "replace" else 1}


@pytest.mark.parametrize("policy", ["keep", "raise"])
def test_a_running_job_still_holds_its_key(connect: Connect, policy: OnConflict) -> None:
    conn = connect()
    worker = Worker(conn)
    first = put(conn, 1)
    worker.claim()
    if policy == "keep":
        assert put(conn, 2).id == first.id
    else:
        with pytest.raises(DuplicateJob):
            put(conn, 2, on_conflict="raise")


def test_a_key_is_free_when_its_job_has_ended(connect: Connect) -> None:
    conn = connect()
    worker = Worker(conn)
    first = put(conn, 1)
    worker.end(worker.claim(), COMPLETED)
    second = put(conn, 2)
    assert second.created
    assert statuses(conn) == {first.id: "completed", second.id: "pending"}


@pytest.mark.parametrize("commit", [True, False])
def test_the_holder_ends_meanwhile(connect: Connect, commit: bool) -> None:
    """`keep` waits for a finish under way: then there is a new job, or the old one still."""
    conn, user = connect(), connect()
    worker = Worker(conn)
    first = put(conn, 1)
    claimed = worker.claim()
    conn.execute("BEGIN")
    worker.end(claimed)
    with background(lambda: put(user, 2)) as call:
        try:
            await_waiting(conn, user.info.backend_pid)
        finally:
            conn.execute("COMMIT" if commit else "ROLLBACK")
        second = call.result(timeout=30)
    assert second.created is commit
    assert (second.id == first.id) is not commit


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("doom", ["called off", "called off while it runs", "expired"])
def test_a_job_that_will_not_run_gives_up_its_key(connect: Connect, policy: OnConflict, doom: str) -> None:
    """If the job that waits in an order key was cancelled or has expired, the new one runs."""
    conn = connect()
    worker = Worker(conn)
    put(conn, 0, key="head", order_key="o")
    if doom == "called off while it runs":
        first = put(conn, 1)
        worker.claim()
    else:
        first = put(conn, 1, order_key="o")
    if doom == "expired":
        conn.execute("UPDATE holdfast.job SET expires_at = %s WHERE id = %s", [LONG_AGO, first.id])
    else:
        assert run_sync(conn, cancel_job(first.id)) == "requested"
    second = put(conn, 2, on_conflict=policy)
    assert (second.created, second.id != first.id) == (True, True)
    assert payloads(conn) == payloads(conn) | {first.id: 1, second.id: 2}
    assert put(conn, 3).id == second.id


@pytest.mark.parametrize("policy", ["keep", "raise"])
def test_a_job_that_runs_past_its_time_holds_its_key(connect: Connect, policy: OnConflict) -> None:
    """It started in time, and goes on."""
    conn = connect()
    worker = Worker(conn)
    first = put(conn, 1)
    worker.claim()
    conn.execute("UPDATE holdfast.job SET expires_at = %s", [LONG_AGO])
    if policy == "keep":
        assert put(conn, 2).id == first.id
    else:
        with pytest.raises(DuplicateJob):
            put(conn, 2, on_conflict="raise")


def test_jobs_of_one_call_that_are_too_late_are_one(connect: Connect) -> None:
    conn = connect()
    late = [NewJob[Any](Envelope("k", unique=Unique("a"), expires=LONG_AGO), "{}") for _ in range(20)]
    handles = run_sync(conn, enqueue_jobs(late))
    assert [handle.created for handle in handles] == [True] + [False] * 19


@pytest.mark.parametrize("policy", ["replace", "debounce"])
def test_what_has_started_within_a_window_is_not_changed(connect: Connect, policy: OnConflict) -> None:
    """One job in a window: there is no successor."""
    conn = connect()
    worker = Worker(conn)
    first = put(conn, 1, window=WINDOW)
    running = worker.claim()
    for _ in ("while it runs", "when it has ended"):
        again = put(conn, 2, window=WINDOW, on_conflict=policy)
        assert (again.id, again.created) == (first.id, False)
        worker.end(running)
    assert statuses(conn) == {first.id: "completed"}


def test_a_window_outlives_the_job(connect: Connect) -> None:
    conn = connect()
    worker = Worker(conn)
    first = put(conn, 1, window=WINDOW)
    worker.end(worker.claim())
    again = put(conn, 2, window=WINDOW)
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(DuplicateJob) as caught:
        put(conn, 3, window=WINDOW, on_conflict="raise")
    assert caught.value.existing_id == first.id


def test_a_window_ends(connect: Connect) -> None:
    """Windows are laid end to end from the epoch on; what was taken in one is free in the next."""
    conn = connect()
    window = timedelta(hours=1)
    first = put(conn, 1, window=window)
    ends_at, started = conn.execute(
        "SELECT ends_at, clock_timestamp() BETWEEN ends_at - interval '1 hour' AND ends_at FROM holdfast.unique_window"
    ).fetchall()[0]
    assert (ends_at.minute, ends_at.second, ends_at.microsecond, started) == (0, 0, 0, True)
    conn.execute("UPDATE holdfast.unique_window SET ends_at = ends_at - interval '1 hour'")
    second = put(conn, 2, window=window)
    assert (second.created, second.id != first.id) == (True, True)


def test_duplicates_in_one_call(connect: Connect) -> None:
    conn = connect()
    worker = Worker(conn)

    def many(*jobs: tuple[str | None, int, OnConflict]) -> list[Handle[Any]]:
        new = [
            job(payload=json.dumps({"n": n}), unique=None if key is None else Unique(key, on_conflict=policy))
            for key, n, policy in jobs
        ]
        return run_sync(conn, enqueue_jobs(new))

    kept = many(("b", 1, "keep"), (None, 2, "keep"), ("a", 3, "keep"), ("b", 4, "keep"))
    assert [handle.created for handle in kept] == [True, True, True, False]
    assert kept[3].id == kept[0].id
    assert payloads(conn) == {kept[0].id: 1, kept[1].id: 2, kept[2].id: 3}

    replaced = many(("b", 5, "replace"), ("c", 6, "replace"), ("c", 7, "replace"), ("b", 8, "replace"))
    assert [handle.created for handle in replaced] == [False, True, False, False]
    assert payloads(conn)[kept[0].id] == 8, "the last one wins"
    assert payloads(conn)[replaced[1].id] == 7
    with pytest.raises(DuplicateJob):
        many(("d", 9, "raise"), ("d", 10, "raise"))
    assert len(drain(worker)) == 4


def test_a_rolled_back_holder_never_was(connect: Connect) -> None:
    conn, user = connect(), connect()
    for window in (None, WINDOW):
        with user.transaction(force_rollback=True):
            put(user, 1, window=window)
        assert put(conn, 2, window=window).created


def test_a_payload_that_says_unique_key_is_only_a_payload(connect: Connect) -> None:
    conn = connect()
    text = '{"unique_key":"a"}'
    handles = run_sync(conn, enqueue_jobs([job(payload=text), job(payload=text)]))
    assert [handle.created for handle in handles] == [True, True]


def test_a_cancelled_job_keeps_its_window(connect: Connect) -> None:
    conn = connect()
    first = put(conn, 1, window=WINDOW)
    run_sync(conn, cancel_job(first.id))
    again = put(conn, 2, window=WINDOW)
    assert (again.id, again.created) == (first.id, False)


def test_windows_are_those_of_the_clock_and_not_of_the_first_job(connect: Connect) -> None:
    conn = connect()
    put(conn, 1, window=timedelta(days=1))
    (row,) = conn.execute("SELECT ends_at AT TIME ZONE 'UTC' FROM holdfast.unique_window").fetchall()
    assert row[0].time() == time(0)
