"""PROTOCOL, section 3: jobs of one key run one at a time, in order, and no key is ever left without a next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.new_job import OrderKey
from holdfast._model.outcome import Completed
from holdfast._store.claim import REACHES, Floors, claim_jobs
from holdfast._store.finish import Ending, finish_jobs
from holdfast._store.search import cancel_job, replay_job, resume_order_key
from tests.kit.mutation import open_trap
from tests.kit.plans import buffers
from tests.kit.sessions import held_snapshot
from tests.kit.workers import (
    CANCELLED,
    COMPLETED,
    EVERYTHING,
    FAILED,
    RELEASED,
    RESCHEDULED,
    RETRIED,
    Worker,
    drain,
    enqueue,
    expire_leases,
    fill,
    job,
    number,
    pass_time,
    statuses,
)

if TYPE_CHECKING:
    from psycopg import Connection

    from holdfast._model.outcome import Outcome
    from tests.kit.workers import Connect

LEAVING: dict[str, Outcome] = {"completed": COMPLETED, "failed": FAILED, "cancelled": CANCELLED}
COMING_BACK: dict[str, Outcome] = {"retried": RETRIED, "rescheduled": RESCHEDULED, "released": RELEASED}

NO_PROMOTION = ("settle_batch", ("IF successors <> '{}' THEN", "IF false THEN"))
PARKED_AGAIN = (
    "give_back_jobs",
    (
        "SET status = 'pending', locked_until = NULL",
        "SET status = CASE WHEN j.order_key IS NULL THEN status ELSE 'blocked' END, locked_until = NULL",
    ),
)


def end_head(worker: Worker, how: str) -> list[int]:
    """Let the first of three jobs of a key end in one way, then run all that can run; return what was run, in order."""
    ids = enqueue(worker.conn, *[job(order_key=OrderKey("a"), max_attempts=3) for _ in range(3)])
    if how == "expired":
        worker.conn.execute("UPDATE holdfast.job SET expires_at = now() WHERE id = %s", [ids[0]])
    claimed = worker.claim()
    assert [head.id for head in claimed] == ids[:1], "only the head may run"
    match how:
        case "reaped" | "reaped for the last time":
            if how != "reaped":
                worker.conn.execute("UPDATE holdfast.job SET attempt = max_attempts")
            expire_leases(worker.conn)
            assert len(worker.reap()) == 1
        case "expired":
            assert claimed[0].expired
            worker.end(claimed, CANCELLED)
        case "called off while running":
            assert run_sync(worker.conn, cancel_job(ids[0])) == "requested"
            worker.end(claimed, RELEASED)
        case _:
            worker.end(claimed, (LEAVING | COMING_BACK)[how])
    return [ids.index(done) for done in drain(worker)]


@pytest.mark.parametrize(
    ("how", "rest", "trap"),
    [
        *((how, [1, 2], NO_PROMOTION) for how in LEAVING),
        *((how, [0, 1, 2], PARKED_AGAIN) for how in COMING_BACK),
        ("reaped", [0, 1, 2], PARKED_AGAIN),
        ("reaped for the last time", [1, 2], NO_PROMOTION),
        ("expired", [1, 2], NO_PROMOTION),
        ("called off while running", [1, 2], NO_PROMOTION),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_key_goes_on(connect: Connect, how: str, rest: list[int], trap: tuple[str, tuple[str, str]]) -> None:
    conn = connect()
    worker = Worker(conn)
    assert end_head(worker, how) == rest
    conn.execute("TRUNCATE holdfast.job")
    open_trap(conn, *trap)
    assert end_head(worker, how) == [], "stuck for ever"


@pytest.mark.parametrize("how", LEAVING)
def test_no_job_is_parked_behind_an_ending_head(connect: Connect, how: str) -> None:
    def run_after_it() -> list[int]:
        leaver, other = Worker(connect()), Worker(connect())
        enqueue(leaver.conn, job(order_key="a"))
        head = leaver.claim()
        (second,) = enqueue(leaver.conn, job(order_key="a"))
        with leaver.conn.transaction():
            # The second is not parked, so nobody is promoted; and to others the head is still there.
            leaver.end(head, LEAVING[how])
            assert other.claim() == []
        return [done - second for done in drain(other)]

    assert run_after_it() == [0]
    lock = "WHERE pg_try_advisory_xact_lock(hashtext('holdfast.order_key'), hashtext(k.order_key))"
    open_trap(connect(), "take_order_heads", (lock, ""))
    assert run_after_it() == [], "stuck for ever"


def test_a_head_that_waits_for_its_retry_is_not_overtaken(connect: Connect) -> None:
    worker = Worker(connect())
    first, second = enqueue(worker.conn, job(order_key="a"), job(order_key="a"))
    worker.end(worker.claim(), RETRIED)
    worker.conn.execute("UPDATE holdfast.job SET available_at = now() + interval '1 hour' WHERE id = %s", [first])
    (third,) = enqueue(worker.conn, job(order_key="a"))
    assert worker.claim() == []
    assert drain(worker) == [first, second, third]


@pytest.mark.parametrize("parked", [False, True])
def test_a_job_called_off_in_the_queue_leaves_in_its_turn(connect: Connect, parked: bool) -> None:
    worker = Worker(connect())
    first, second, third = enqueue(worker.conn, *[job(order_key="a") for _ in range(3)])
    claimed = worker.claim() if parked else []
    assert run_sync(worker.conn, cancel_job(second)) == "requested"
    worker.end(claimed or worker.claim())
    (called_off,) = worker.claim()
    assert (called_off.id, called_off.cancelled) == (second, True)
    worker.end([called_off], CANCELLED)
    assert drain(worker) == [third]
    assert statuses(worker.conn) == {first: "completed", second: "cancelled", third: "completed"}


def test_the_referee(connect: Connect) -> None:
    """Whatever the claim decides, the index lets one job of a key run at a time."""
    conn = connect()
    worker = Worker(conn)
    enqueue(conn, job(order_key="a"), job(order_key="a"))
    open_trap(
        conn,
        "take_order_heads",
        ("FILTER (WHERE NOT v.busy AND NOT v.waits)", ""),
        ("SET status = 'blocked' WHERE", "SET status = 'blocked' WHERE false AND"),
    )
    with pytest.raises(psycopg.errors.UniqueViolation, match="job_order_key_running"):
        worker.claim()
    conn.execute("DROP INDEX holdfast.job_order_key_running")
    assert len(worker.claim()) == 2


def test_a_hot_key_is_walked_over_once(connect: Connect) -> None:
    def cost_of_other_work() -> int:
        conn = connect()
        conn.execute("TRUNCATE holdfast.job")
        worker = Worker(conn)
        fill(conn, 2_000, order_key="'hot'", order_seq="n")
        for _ in range(20):
            if not run_sync(conn, claim_jobs(worker.id, {"default": 500}, worker.leases)).again:
                break
        fill(conn, 5, available_at="now() - interval '1 second'")
        # A pass over the table: what has been parked leaves the index of the pending.
        conn.execute("VACUUM holdfast.job")
        return buffers(conn, claim_jobs(worker.id, {"default": 5}, worker.leases))

    parked = cost_of_other_work()
    assert parked < 200
    open_trap(connect(), "take_order_heads", ("SET status = 'blocked' WHERE", "SET status = 'blocked' WHERE false AND"))
    assert cost_of_other_work() > 10 * parked


def advisory_locks(conn: Connection[Any]) -> int:
    held: int = number(conn, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
    return held


def test_a_claim_holds_a_hundred_keys_at_most(connect: Connect) -> None:
    def locks() -> int:
        conn = connect()
        worker = Worker(conn)
        with conn.transaction(force_rollback=True):
            # Without a reach, so that the only locks are those of keys.
            jobs = worker.claim(1_000, reach=0)
            held = advisory_locks(conn)
            assert len(jobs) == held
        return held

    fill(connect(), 300, order_key="'key ' || n", order_seq="n")
    assert locks() == 100
    open_trap(connect(), "claim_jobs", ("key_budget integer := 100", "key_budget integer := 100000"))
    assert locks() == 300


def test_all_keys_are_claimed_in_the_end(connect: Connect) -> None:
    worker = Worker(connect())
    fill(worker.conn, 350, order_key="'key ' || n % 250", order_seq="n")
    assert len(drain(worker)) == 350


LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


@pytest.mark.parametrize("level", LEVELS)
def test_enqueueing_takes_no_lock(connect: Connect, level: str) -> None:
    one, other = connect(), connect()
    worker = Worker(one)
    for conn in (one, other):
        conn.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
        conn.execute("SET LOCAL lock_timeout = '100ms'")
    (first,), (second,) = enqueue(one, job(order_key="a")), enqueue(other, job(order_key="a"))
    assert (advisory_locks(one), advisory_locks(other)) == (0, 0)
    other.execute("COMMIT")
    one.execute("COMMIT")
    assert drain(worker) == [first, second]

    # The trap: whoever enqueues makes sure of the order at once, and waits for the others.
    open_trap(one, "enqueue_jobs", ("    IF plain THEN", "    PERFORM pg_advisory_xact_lock(4711);\n    IF plain THEN"))
    for conn in (one, other):
        conn.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
    enqueue(one, job(order_key="a"))
    other.execute("SET LOCAL lock_timeout = '100ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        enqueue(other, job(order_key="a"))


def test_a_failed_head_that_must_block(connect: Connect) -> None:
    def after_a_failure() -> tuple[list[int], list[int]]:
        """Return the jobs of the key, of which the first failed and the last came later, and what runs of them."""
        conn = connect()
        worker = Worker(conn)
        stops = OrderKey("a", on_failure="block")
        (failed,) = enqueue(conn, job(order_key=stops))
        assert worker.end(worker.claim(), FAILED) == {failed: "failed"}
        ids = [failed, *enqueue(conn, job(order_key=stops))]
        return ids, drain(worker)

    ids, ran = after_a_failure()
    assert ran == []
    conn = connect()
    worker = Worker(conn)
    replay = run_sync(conn, replay_job(ids[0]))
    assert drain(worker) == [replay, ids[1]], "the replay takes the old place"
    open_trap(conn, "leave_jobs", ("AND j.order_block AND j.order_key IS NOT NULL", "AND false"))
    ids, ran = after_a_failure()
    assert ran == ids[1:]


def test_a_chain_continues_in_a_key_with_a_shared_position(connect: Connect) -> None:
    def ran() -> tuple[list[int], list[int]]:
        """Return the replays of one dead letter and what was run of its key after the first, which went on."""
        conn = connect()
        worker = Worker(conn)
        (dead,) = enqueue(conn, job(order_key=OrderKey("a", on_failure="next")))
        worker.end(worker.claim(), FAILED)
        replays = [run_sync(conn, replay_job(dead, again=True)) or 0 for _ in range(2)]
        (first,) = worker.claim()
        assert first.id == replays[0]
        worker.end([first], Completed(next=job(order_key="a").as_json()))
        return replays, drain(worker)

    replays, done = ran()
    (last,) = done[1:]
    assert done == [replays[1], last]
    assert last > replays[1]
    open_trap(connect(), "lock_successors", (" OR (n.order_seq, n.id) < (j.order_seq, s.next_id))", ")"))
    _, done = ran()
    assert done == [], "each waits behind the other"


def test_a_stopped_key_is_resumed_by_hand(connect: Connect) -> None:
    worker = Worker(connect())
    stops = OrderKey("a", on_failure="block")
    failed, second, third = enqueue(worker.conn, *[job(order_key=stops) for _ in range(3)])
    assert worker.end(worker.claim(), FAILED) == {failed: "failed"}
    assert drain(worker) == []
    assert run_sync(worker.conn, resume_order_key("a")) is True
    assert drain(worker) == [second, third]
    assert run_sync(worker.conn, resume_order_key("a")) is False


def test_a_lower_job_that_commits_while_a_higher_one_runs(connect: Connect) -> None:
    def late_commit(worker: Worker, user: Connection[Any]) -> tuple[list[int], list[int]]:
        """Return what is claimed beside the running one, and what runs after it."""
        with user.transaction():
            (lower,) = enqueue(user, job(order_key="a"))
            (higher,) = enqueue(worker.conn, job(order_key="a"))
            running = worker.claim()
            assert [claimed.id for claimed in running] == [higher]
        beside = [claimed.id for claimed in worker.claim()]
        pass_time(worker.conn, 1)
        beside += [claimed.id for claimed in worker.claim()]
        worker.end(running)
        after = drain(worker)
        assert after in ([lower], [])
        worker.conn.execute("TRUNCATE holdfast.job")
        return beside, after

    worker, user = Worker(connect()), connect()
    beside, after = late_commit(worker, user)
    assert beside == []
    assert len(after) == 1

    # Parked like all others it is never promoted: the running one does not look below itself.
    open_trap(
        user,
        "take_order_heads",
        (
            "SET available_at = clock_timestamp() + interval '1 second', later = true WHERE id = ANY (early)",
            "SET status = 'blocked' WHERE id = ANY (early)",
        ),
    )
    assert late_commit(worker, user) == ([], [])
    # Not looked at, it runs into the referee.
    open_trap(user, "take_order_heads", ("e.status = 'processing') AS busy", "false) AS busy"))
    with pytest.raises(psycopg.errors.UniqueViolation):
        late_commit(worker, user)


def test_promotion_does_not_walk_over_the_dead_of_its_key(connect: Connect) -> None:
    conn = connect()
    worker, floors = Worker(conn), Floors()
    waiting = "(CASE WHEN n = 1 THEN 'pending' ELSE 'blocked' END)::holdfast.status"

    def finish_cost() -> int:
        running = worker.claim(1)
        return buffers(conn, finish_jobs(worker.id, [Ending(head, COMPLETED) for head in running]))

    with held_snapshot(connect()):
        fill(conn, 1_000, order_key="'hot'", order_seq="n", status=waiting)
        alone = finish_cost()
        expire_leases(conn)
        worker.reap()
        for _ in range(800):
            worker.end(worker.claim(1, floors=floors, reach=EVERYTHING))
        assert finish_cost() <= 1.5 * alone
        expire_leases(conn)
        worker.reap()
        open_trap(conn, "lock_successors", ("(e.order_seq, e.id) > (j.order_seq, j.id)", "e.id <> j.id"))
        assert finish_cost() > 3 * alone


@pytest.mark.nightly
def test_other_work_does_not_walk_over_the_dead_of_a_key(connect: Connect) -> None:
    conn = connect()
    worker, floors = Worker(conn), Floors()
    waiting = "(CASE WHEN n = 1 THEN 'pending' ELSE 'blocked' END)::holdfast.status"

    def claim_cost() -> int:
        """Return what it costs to claim a job without key while the head of the key runs."""
        fill(conn, 1)
        return buffers(conn, claim_jobs(worker.id, {"default": 1}, worker.leases, floors=floors, reach=REACHES[0]))

    with held_snapshot(connect()):
        fill(conn, 1_000, order_key="'hot'", order_seq="n", status=waiting)
        (head,) = worker.claim(1)
        alone = claim_cost()
        for _ in range(800):
            worker.end([head])
            (head,) = worker.claim(1, floors=floors, reach=REACHES[0])
            floors.advance([head], reach=REACHES[0], took=0)
        # A quarter of a second's dead entries of the lane are walked over by design.
        assert claim_cost() <= alone + 500
