"""The traps of limits that hold in the whole database, each opened in the schema and seen to spring."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from holdfast._drivers import run_sync
from holdfast._model.errors import WrongIsolation
from holdfast._store.claim import Floors, claim_jobs
from holdfast._store.enqueue import enqueue_jobs
from holdfast._store.finish import Ending, finish_jobs
from holdfast._store.limit import set_limit
from tests.kit.limits import limited, mend, parked, promoted, set_limits, set_rate
from tests.kit.mutation import open_trap
from tests.kit.plans import buffers
from tests.kit.sessions import await_waiting, background, held_snapshot
from tests.kit.workers import COMPLETED, Worker, drain, enqueue, expire_leases, fill, job, number

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect

LOCK = "PERFORM pg_advisory_xact_lock(hashtext('holdfast.limit'), k.hash)"


@pytest.fixture
def worker(connect: Connect) -> Worker:
    set_limits(connect(), one=1, two=2, five=5)
    return Worker(connect(), "k", "m")


def ids(jobs: list[ClaimedJob]) -> list[int]:
    return sorted(job.id for job in jobs)


def ordinary(worker: Worker) -> list[int]:
    """Claim without the jobs whose worker was lost."""
    slots = dict.fromkeys(worker.queues, 10)
    return ids(run_sync(worker.conn, claim_jobs(worker.id, slots, worker.leases)).jobs)


def with_and_without(
    conn: psycopg.Connection, play: Callable[[], bool], function: str, *changes: tuple[str, str]
) -> None:
    """Play the schedule, which returns whether it went well; then again with the trap open."""
    assert play()
    conn.execute("DELETE FROM holdfast.job")
    open_trap(conn, function, *changes)
    # What the session remembers of a key is from before.
    conn.execute("RESET ALL")
    assert not play()


def test_two_kinds_of_one_limit(worker: Worker) -> None:
    """An ending that looks only in its own lane leaves the other lane parked."""

    def play() -> bool:
        enqueue(worker.conn, limited("one"), limited("one", kind="m"), limited("one", kind="m"))
        return len(drain(worker)) == 3

    every = "j.queue < coalesce(e.queue, chr(1114111)) AND j.id <> ALL (leaving)"
    own = "AND j.kind = ANY (ARRAY(SELECT q.kind FROM holdfast.job q WHERE q.id = ANY (leaving)))"
    with_and_without(worker.conn, play, "lock_limit_heads", (every, f"{every} {own}"))


def test_an_ending_in_a_stricter_transaction(worker: Worker, connect: Connect) -> None:
    """Its snapshot is as old as the transaction, and does not show what was parked meanwhile."""

    def play() -> bool:
        enqueue(worker.conn, limited("one"))
        claimed = worker.claim()
        strict = connect()
        strict.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        strict.execute("SELECT count(*) FROM holdfast.job").fetchone()
        enqueue(worker.conn, limited("one"))
        assert worker.claim() == []
        try:
            run_sync(strict, finish_jobs(worker.id, [Ending(claimed[0], COMPLETED)], careful=True))
        except WrongIsolation:
            strict.execute("ROLLBACK")
            worker.end(claimed)
        else:
            strict.execute("COMMIT")
        return len(drain(worker)) == 1

    guard = "IF current_setting('transaction_isolation') <> 'read committed' THEN"
    with_and_without(worker.conn, play, "lock_limits", (guard, "IF false THEN"))


def test_an_ending_beside_a_claim_that_parks(worker: Worker, connect: Connect) -> None:
    """Without the lock, the ending does not see the job that the claim parks behind it."""

    def play() -> bool:
        enqueue(worker.conn, limited("one"))
        claimed = worker.claim()
        other = Worker(connect())
        enqueue(worker.conn, limited("one"))
        with other.conn.transaction():
            assert other.claim() == []
            answers = worker.end(claimed, careful=True)
        if answers[claimed[0].id] == "busy":
            worker.end(claimed)
        return len(drain(worker)) == 1

    with_and_without(worker.conn, play, "lock_limits", (LOCK, "PERFORM k.hash"))


def test_a_lost_job_does_not_count_as_promoted(worker: Worker) -> None:
    """It is pending, but ordinary claims pass it by."""

    def play() -> bool:
        first, _, third, fourth = enqueue(worker.conn, *[limited("two") for _ in range(4)])
        claimed = worker.claim()
        expire_leases(worker.conn, [each for each in claimed if each.id == first])
        worker.reap()
        assert ordinary(worker) == [third]
        worker.end([each for each in claimed if each.id != first])
        return ordinary(worker) == [fourth]

    with_and_without(
        worker.conn, play, "give_back_jobs", ("progress_note = NULL, limit_key = NULL,", "progress_note = NULL,")
    )


def test_a_lost_job_keeps_to_its_limit(worker: Worker) -> None:
    """There are two ways to claim."""

    def play() -> bool:
        _, second = enqueue(worker.conn, limited("one"), limited("one"))
        worker.claim()
        expire_leases(worker.conn)
        worker.reap()
        assert ordinary(worker) == [second]
        return worker.claim_suspects() == []

    with_and_without(
        worker.conn,
        play,
        "claim_suspects",
        ("FILTER (WHERE NOT keyed)", "FILTER (WHERE true)"),
        ("FILTER (WHERE keyed)", "FILTER (WHERE false)"),
    )


def test_a_limit_that_was_zero(worker: Worker) -> None:
    """No job runs whose ending could promote the next."""
    assert run_sync(worker.conn, set_limit("one", concurrency=0, starts=None, period_ms=None, burst=1, who="ann"))
    enqueue(worker.conn, limited("one"))
    assert worker.claim() == []
    set_limits(worker.conn, one=1)
    assert worker.claim() == []
    assert mend(worker.conn, "one") == 1
    assert len(worker.claim()) == 1


def test_a_limit_that_is_raised_while_a_claim_takes_the_promoted_job(worker: Worker, connect: Connect) -> None:
    """The claim counted by the old limit, and what looks meanwhile sees a promoted job."""
    conn, mender = worker.conn, connect()

    def play(*, waits: bool) -> bool:
        set_limits(conn, one=1)
        run_sync(conn, enqueue_jobs([limited("one") for _ in range(4)]))
        other = Worker(connect())
        other.conn.execute("BEGIN")
        assert len(other.claim()) == 1
        set_limits(conn, one=3)
        with background(lambda: mend(mender, "one")) as mended:
            if waits:
                await_waiting(conn, mender.info.backend_pid)
            else:
                mended.result()
            other.conn.execute("COMMIT")
        return len(worker.claim()) == 2

    # Long enough to be seen to wait.
    conn.execute("ALTER FUNCTION holdfast.mend_limits SET lock_timeout = '20s'")
    assert play(waits=True)
    conn.execute("DELETE FROM holdfast.job")
    open_trap(conn, "mend_limits", ("IF name IS NULL THEN", "IF true THEN"))
    assert not play(waits=False)


def test_a_limit_below_what_runs(worker: Worker) -> None:
    enqueue(worker.conn, *[limited("five") for _ in range(9)])
    claimed = worker.claim()
    set_limits(worker.conn, five=2)
    for ended, left in ((claimed[:3], 0), (claimed[3:], 2)):
        worker.end(ended)
        assert len(worker.claim()) == left


def test_keys_are_locked_in_one_order(worker: Worker, connect: Connect) -> None:
    """Two endings that lock their keys in two orders wait for each other."""
    set_limits(worker.conn, p=1, q=1)
    hashes = dict(worker.conn.execute("SELECT k, hashtext(k) FROM unnest(ARRAY['p', 'q']) AS k").fetchall())
    low, high = sorted(hashes, key=lambda key: hashes[key])
    # Long enough to be seen to wait.
    worker.conn.execute("ALTER FUNCTION holdfast.lock_limits SET lock_timeout = '2s'")

    def play() -> bool:
        ender, holder, watcher = Worker(connect()), connect(), connect()
        enqueue(ender.conn, limited(high, low))
        claimed = ender.claim()
        with holder.transaction():
            holder.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast.limit'), %s)", [hashes[low]])
            with background(lambda: ender.end(claimed, careful=True)):
                await_waiting(watcher, ender.conn.info.backend_pid)
                held = number(
                    holder,
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = %s",
                    ender.conn.info.backend_pid,
                )
        return bool(held == 0)

    order = "FROM unnest(keys) AS l ORDER BY 1) AS k"
    with_and_without(worker.conn, play, "lock_limits", (order, "FROM unnest(keys) AS l ORDER BY 1 DESC) AS k"))


def test_what_runs_is_counted_in_the_index_of_limits(worker: Worker) -> None:
    """Beside thousands of other jobs that run, a planner with statistics prefers the index of leases."""
    conn = worker.conn
    enqueue(conn, *[limited("five") for _ in range(9)])
    worker.claim()
    fill(conn, 3000, status="'processing'", locked_until="now() + interval '1 hour'", locked_by="1", lock_token="1")  # noqa: S106 - of a claim
    conn.execute("VACUUM ANALYZE holdfast.job")

    def looks() -> int:
        with conn.transaction(force_rollback=True):
            plan = conn.execute(
                "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT holdfast.limit_rooms(ARRAY['five'], true)"
            ).fetchone()
        assert plan is not None
        return int(plan[0][0]["Plan"]["Shared Hit Blocks"])

    looks()
    assert looks() < 40


def test_an_ending_waits_a_tenth_of_a_second_at_most(worker: Worker, connect: Connect) -> None:
    """A user's transaction may keep a key as long as it likes: that is the trouble of jobs of this key only."""
    made = enqueue(worker.conn, limited("one"), limited("two"), job("k"))
    claimed = worker.claim()
    holder = connect()
    with holder.transaction():
        holder.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast.limit'), hashtext('one'))")
        answers = worker.end(claimed, careful=True)
        assert answers == {made[0]: "busy", made[1]: "completed", made[2]: "completed"}
        # Claims pass the key by.
        enqueue(worker.conn, limited("one"))
        (two,) = enqueue(worker.conn, limited("two"))
        assert ordinary(worker) == [two]
    assert worker.end([each for each in claimed if each.id == made[0]], careful=True) == {made[0]: "completed"}


def test_a_job_that_could_not_end_keeps_its_places(worker: Worker, connect: Connect) -> None:
    """Its second key is a row of its own, which leaves with the job and not with the attempt to end it."""
    set_limits(worker.conn, many=9)

    def play() -> bool:
        enqueue(worker.conn, limited("many", "one"))
        claimed = worker.claim()
        holder = connect()
        with holder.transaction():
            holder.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast.limit'), hashtext('many'))")
            assert set(worker.end(claimed, careful=True).values()) == {"busy"}
        enqueue(worker.conn, limited("one"))
        return worker.claim() == []

    kept = "limited := ARRAY(SELECT l FROM unnest(limited) AS l WHERE l <> ALL (busy));"
    with_and_without(worker.conn, play, "settle_batch", (kept, ""))


def test_a_promoted_job_is_the_first_of_its_lane(worker: Worker) -> None:
    """With the time of its promotion it would wait behind all that came since."""

    def play() -> bool:
        enqueue(worker.conn, limited("one"))
        claimed = worker.claim()
        (second,) = enqueue(worker.conn, limited("one"))
        assert worker.claim() == []
        fill(worker.conn, 100, available_at="now()", created_at="now()")
        worker.end(claimed)
        return second in ids(worker.claim(5))

    with_and_without(
        worker.conn,
        play,
        "promote_limited",
        ("coalesce(h.token_at, j.available_at)", "coalesce(h.token_at, clock_timestamp())"),
    )


def test_the_next_job_is_locked_by_a_users_transaction(worker: Worker, connect: Connect) -> None:
    """It cannot be promoted now, and nothing would promote it later."""

    def play() -> bool:
        (_, second) = enqueue(worker.conn, limited("one"), limited("one"))
        claimed = worker.claim()
        user = connect()
        with user.transaction():
            user.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [second])
            answer = worker.end(claimed, careful=True)[claimed[0].id]
        if answer == "busy":
            worker.end(claimed)
        return drain(worker) == [second]

    with_and_without(worker.conn, play, "lock_limits", ("missed := missed || found.stuck;", "NULL;"))


def test_of_jobs_that_wait_for_a_token_one_is_scheduled(worker: Worker) -> None:
    """A thousand jobs for the same moment would be claimed, and parked again."""
    set_rate(worker.conn, "slow", 1, 3_600_000)
    run_sync(worker.conn, enqueue_jobs([limited("slow", kind="km"[n % 2]) for n in range(1000)]))
    assert len(worker.claim()) == 1
    assert worker.claim() == []
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job WHERE later") == 2
    assert len(promoted(worker.conn)) == 2
    assert len(parked(worker.conn)) == 997


def test_parked_jobs_cost_others_nothing(worker: Worker) -> None:
    """They are outside of the index that claims read."""
    conn = worker.conn
    (plain,) = enqueue(conn, job("k"))
    conn.execute("VACUUM ANALYZE holdfast.job")
    claim = claim_jobs(worker.id, {"default": 10}, worker.leases)
    alone = buffers(conn, claim)
    fill(conn, 20_000, limits="'{one}'", limit_key="'one'", status="'blocked'")
    conn.execute("VACUUM ANALYZE holdfast.job")
    assert buffers(conn, claim) <= 1.1 * alone
    assert ids(worker.claim()) == [plain]


def test_a_hot_key_under_a_held_snapshot(worker: Worker, connect: Connect) -> None:
    """The entries of the key's jobs that have ended stand before those that run and wait, and stay there."""
    conn, floors = worker.conn, Floors()
    conn.execute("SELECT setseed(0.5)")

    def claim(slots: int = 5) -> list[ClaimedJob]:
        claimed = run_sync(conn, claim_jobs(worker.id, {"default": slots}, worker.leases, floors=floors)).jobs
        floors.advance(claimed, reach=0, took=0)
        return claimed

    def cost(running: list[ClaimedJob]) -> int:
        """Return what it takes to end one job and to claim the next, at the least of a few times."""
        ending = finish_jobs(worker.id, [Ending(running[0], COMPLETED)])
        claiming = claim_jobs(worker.id, {"default": 5}, worker.leases, floors=floors)
        costs = []
        for _ in range(3):
            with conn.transaction(force_rollback=True):
                costs.append(buffers(conn, ending, keep=True) + buffers(conn, claiming, keep=True))
        return min(costs)

    with held_snapshot(connect()):
        enqueue(conn, *[limited("five") for _ in range(500)])
        running = claim()
        alone = cost(running)
        for _ in range(100):
            worker.end(running[:4])
            running = running[4:] + claim()
        assert len(running) == 5
        assert cost(running) <= 1.25 * alone
        open_trap(conn, "recall_limits", ("WHERE starts_with(", "WHERE false AND starts_with("))
        assert cost(running) > 2 * alone


def test_what_a_session_remembers_of_a_key_hides_no_job(worker: Worker, connect: Connect) -> None:
    """Urgent jobs, jobs of other lanes and those that committed late stand before the place where it looks first."""
    conn = worker.conn
    late = connect()
    late.execute("BEGIN")
    (older,) = enqueue(late, limited("one"))
    made = enqueue(conn, *[limited("one") for _ in range(40)])
    # Each look is remembered, and holds for the whole test.
    for name in ("limit_rooms", "lock_limit_heads", "take_limited"):
        body = conn.execute("SELECT prosrc FROM pg_proc WHERE proname = %s", [name]).fetchone()
        assert body is not None
        for chance in ("random() < 0.03", "random() < 0.05"):
            if chance in body[0]:
                open_trap(conn, name, (chance, "true"))
    open_trap(conn, "remember_limit", ("interval '1 second'", "interval '1 hour'"))
    running = worker.claim()
    for _ in range(5):
        worker.end(running)
        running = worker.claim()
    remembered = "SELECT count(*) FROM holdfast.recall_limits('{one}') AS m WHERE m.until > now() AND m.since > 0"
    assert number(conn, remembered) == 1
    urgent = enqueue(conn, *[limited("one", priority=3) for _ in range(2)])
    other = enqueue(conn, *[limited("one", kind="a", priority=9) for _ in range(2)])
    late.execute("COMMIT")
    worker.conn.execute("UPDATE holdfast.job SET status = 'blocked', limit_key = 'one' WHERE status = 'pending'")
    worker.leases["a"] = worker.leases["k"]
    worker.end(running)
    assert set(promoted(conn)) == {urgent[0], other[0]}
    ended = drain(worker, rounds=80)
    assert sorted(ended) == sorted([*made[6:], older, *urgent, *other])
    assert ended[:2] == urgent


def test_two_claims_of_one_key_at_once(worker: Worker, connect: Connect) -> None:
    """Look, then claim: without the lock both see the same room."""

    def play() -> bool:
        enqueue(worker.conn, limited("one"))
        other = Worker(connect())
        with other.conn.transaction():
            assert len(other.claim()) == 1
            enqueue(worker.conn, limited("one"))
            taken = ordinary(worker)
        return taken == []

    lock = "pg_try_advisory_xact_lock(hashtext('holdfast.limit'), hashtext(d.key)) AS locked"
    with_and_without(worker.conn, play, "take_limited", (lock, "true AS locked"))


def test_keys_of_a_json_payload_are_no_limits(worker: Worker) -> None:
    """The word in a payload makes the call look for limits, and finds none."""
    worker.conn.execute(
        "SELECT holdfast.enqueue_jobs(%s)", [json.dumps([{"kind": "k", "payload": {"limits": ["one"]}}] * 2)]
    )
    assert len(worker.claim()) == 2
