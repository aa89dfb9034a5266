from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.limit import Limit
from holdfast._model.new_job import OrderKey
from holdfast._model.unique import Unique
from holdfast._store.chain import delete_chains
from holdfast._store.claim import Shards, claim_jobs
from holdfast._store.limit import declare_limits, list_limits, read_limit_wait, reset_limit, set_limit
from holdfast._store.maintenance import set_back_jobs
from holdfast._store.search import cancel_job, replay_job
from tests.kit.limits import limited, mend, parked, promoted, set_limits, set_rate
from tests.kit.workers import (
    COMPLETED,
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
    from collections.abc import Sequence

    from holdfast._model.outcome import Outcome
    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect


def ids(jobs: Sequence[ClaimedJob]) -> list[int]:
    return sorted(job.id for job in jobs)


@pytest.fixture
def worker(connect: Connect) -> Worker:
    set_limits(connect(), one=1, two=2, three=3)
    return Worker(connect(), "k", "m")


def test_no_more_of_a_key_run_at_once(worker: Worker) -> None:
    made = enqueue(worker.conn, *[limited("three:a") for _ in range(7)], *[limited("three:b") for _ in range(2)])
    claimed = worker.claim()
    assert ids(claimed) == [*made[:3], *made[7:]]
    assert worker.claim() == []
    worker.end([job for job in claimed if job.id == made[1]])
    assert ids(worker.claim()) == [made[3]]


def test_the_limit_holds_for_all_workers(worker: Worker, connect: Connect) -> None:
    other = Worker(connect(), "k", "m")
    for _ in range(5):
        enqueue(worker.conn, limited("three"))
    assert len(worker.claim(2)) == 2
    assert len(other.claim()) == 1
    assert other.claim() == []


def test_all_run_in_the_end_oldest_first(worker: Worker) -> None:
    made = enqueue(worker.conn, *[limited("one", kind=kind) for kind in "kmkkm"])
    assert drain(worker) == made


@pytest.mark.parametrize("kind", ["k", "m"])
def test_a_limit_that_kinds_share(worker: Worker, kind: str) -> None:
    first, *others = enqueue(worker.conn, limited("one", kind=kind), limited("one"), limited("one", kind="m"))
    assert ids(worker.claim()) == [first]
    assert parked(worker.conn).keys() <= set(others)
    assert drain(worker) == []
    assert worker.claim() == []


def test_without_a_rule_there_is_no_limit(worker: Worker) -> None:
    made = enqueue(worker.conn, *[limited("unknown") for _ in range(5)])
    assert ids(worker.claim()) == made


def test_other_jobs_run_past(worker: Worker) -> None:
    enqueue(worker.conn, limited("one"), limited("one"))
    (plain,) = enqueue(worker.conn, job("k"))
    assert plain in ids(worker.claim())


def test_a_job_with_several_limits_needs_room_in_all_of_them(worker: Worker) -> None:
    made = enqueue(
        worker.conn, *[limited("three:a", "two") for _ in range(3)], *[limited("three:b", "two") for _ in range(3)]
    )
    claimed = worker.claim()
    assert len(claimed) == 2
    # Parked at the key that is full, and holding no place of the other.
    assert set(parked(worker.conn).values()) == {"two"}
    (alone,) = enqueue(worker.conn, limited("three:b"))
    assert ids(worker.claim()) == [alone]
    worker.end(claimed)
    assert sorted([*ids(claimed), alone, *drain(worker)]) == [*made, alone]


def test_a_job_parked_at_one_limit_is_parked_at_the_next_that_is_full(worker: Worker) -> None:
    first, second, third = (enqueue(worker.conn, limited(*keys))[0] for keys in (("two",), ("two",), ("one", "two")))
    claimed = worker.claim()
    assert ids(claimed) == [first, second]
    assert parked(worker.conn) == {third: "two"}
    (holder,) = enqueue(worker.conn, limited("one"))
    held = worker.claim()
    assert ids(held) == [holder]
    worker.end(claimed)
    assert worker.claim() == []
    assert parked(worker.conn) == {third: "one"}
    worker.end(held)
    assert ids(worker.claim()) == [third]


def test_keys_of_unfit_size_are_refused(worker: Worker) -> None:
    for limits, fault in (
        (["a", "b", "c", "d"], "limits: 1 to 3 keys expected, got 4"),
        ([], "limits: 1 to 3 keys expected, got 0"),
        ([None], "limits: keys expected, got null"),
        (["a", "a"], "limits: different keys expected, got one twice"),
        (["a" * 501], "limits: keys of 1 to 500 bytes of text expected, got another length"),
    ):
        for more in ({}, {"unique_key": "u"}):
            with pytest.raises(psycopg.Error, match=fault):
                worker.conn.execute(
                    "SELECT holdfast.enqueue_jobs(%s)", [json.dumps([{"kind": "k", "limits": limits, **more}])]
                )


def test_many_jobs_are_parked_as_they_are_enqueued(worker: Worker) -> None:
    made = enqueue(
        worker.conn,
        *[limited("three:a") for _ in range(4)],
        *[limited("three:a", kind="m") for _ in range(3)],
        *[limited("three:b", priority=priority) for priority in (5, 2, 5)],
        limited("three:b", delay=60),
        limited("three:b", order_key="o"),
        job("k"),
    )
    pending = {done for done, status in statuses(worker.conn).items() if status == "pending"}
    assert pending == {made[0], made[4], made[8], made[10], made[11], made[12]}
    assert len(parked(worker.conn)) == 7


def test_one_job_from_sql(worker: Worker) -> None:
    made = number(worker.conn, "SELECT holdfast.enqueue('k', limits => '{one}')")
    assert number(worker.conn, "SELECT limits FROM holdfast.job") == ["one"]
    assert ids(worker.claim()) == [made]


@pytest.mark.parametrize("outcome", [COMPLETED, FAILED, RETRIED, RELEASED, RESCHEDULED], ids=lambda o: type(o).__name__)
def test_every_end_frees_the_place(worker: Worker, outcome: Outcome) -> None:
    first, second = enqueue(worker.conn, limited("one"), limited("one"))
    worker.end(worker.claim(), outcome)
    assert ids(worker.claim(1)) == [second]
    assert first < second


def test_a_lost_worker_frees_its_places(worker: Worker) -> None:
    first, second = enqueue(worker.conn, limited("one"), limited("one"))
    worker.claim()
    expire_leases(worker.conn)
    assert len(worker.reap()) == 1
    slots = dict.fromkeys(worker.queues, 10)
    assert ids(run_sync(worker.conn, claim_jobs(worker.id, slots, worker.leases)).jobs) == [second]
    # The lost job is tried again apart, and within the limit.
    pass_time(worker.conn, 3600)
    assert worker.claim_suspects() == []
    assert statuses(worker.conn)[first] == "pending"
    expire_leases(worker.conn, seconds=-60)
    worker.conn.execute("UPDATE holdfast.job SET limits = NULL, limit_key = NULL WHERE id = %s", [second])
    pass_time(worker.conn, 3600)
    assert ids(worker.claim_suspects()) == [first]


@pytest.mark.parametrize("which", ["running", "promoted", "parked"])
@pytest.mark.parametrize("how", ["cancel", "delete"])
def test_a_job_that_leaves_early_lets_the_next_go_on(worker: Worker, how: str, which: str) -> None:
    made = enqueue(worker.conn, *[limited("one") for _ in range(4)])
    claimed = worker.claim()
    if which == "promoted":
        worker.end(claimed)
    gone = {"running": made[0], "promoted": made[1], "parked": made[2]}[which]
    assert (gone in promoted(worker.conn)) == (which == "promoted")
    if how == "cancel":
        run_sync(worker.conn, cancel_job(gone))
        if which == "running":
            worker.end(claimed, RELEASED)
    else:
        assert run_sync(worker.conn, delete_chains([gone])) == [gone]
    if which == "parked":
        worker.end(claimed)
    assert drain(worker) == [each for each in made[1:] if each != gone]


def test_a_promoted_job_that_gets_another_time_passes_it_on(worker: Worker) -> None:
    made = enqueue(worker.conn, *[limited("one") for _ in range(3)])
    worker.end(worker.claim())
    assert promoted(worker.conn) == {made[1]: "one"}
    worker.conn.execute("SELECT holdfast.reschedule_job(%s, now() + interval '1 hour')", [made[1]])
    assert promoted(worker.conn) == {made[2]: "one"}
    assert drain(worker) == [made[2], made[1]]


@pytest.mark.parametrize("on_conflict", ["replace", "debounce"])
def test_a_promoted_job_that_is_replaced_passes_it_on(worker: Worker, on_conflict: Any) -> None:
    unique = Unique("u", on_conflict=on_conflict)
    (first,) = enqueue(worker.conn, limited("one"))
    claimed = worker.claim()
    (second,) = enqueue(worker.conn, limited("one", unique=unique))
    assert worker.claim() == []
    (third,) = enqueue(worker.conn, limited("one"))
    assert worker.claim() == []
    worker.end(claimed)
    assert promoted(worker.conn) == {second: "one"}
    enqueue(worker.conn, limited("one", unique=unique, delay=3600))
    assert promoted(worker.conn) == {third: "one"}
    assert [first, *drain(worker)] == [first, third, second]


def test_a_parked_job_that_is_replaced_has_the_new_limits(worker: Worker) -> None:
    unique = Unique("u", on_conflict="replace")
    enqueue(worker.conn, limited("one"))
    worker.claim()
    (second,) = enqueue(worker.conn, limited("one", unique=unique))
    assert worker.claim() == []
    enqueue(worker.conn, limited("two", unique=unique))
    assert ids(worker.claim()) == [second]


def test_an_expired_job_leaves_in_its_turn(worker: Worker) -> None:
    first, second = enqueue(worker.conn, limited("one"), limited("one", expires=60))
    claimed = worker.claim()
    worker.conn.execute("UPDATE holdfast.job SET expires_at = now() WHERE id = %s", [second])
    worker.end(claimed)
    (late,) = worker.claim()
    assert (late.id, late.expired) == (second, True)
    assert first != second


def test_the_next_job_of_a_chain_has_its_own_limits(worker: Worker) -> None:
    (first,) = enqueue(worker.conn, limited("one"))
    (claimed,) = worker.claim()
    following = json.dumps({"kind": "k", "payload": {}, "limits": ["two"]})
    complete = "SELECT holdfast.complete_job(%s, %s, %s, next => %s)"
    worker.conn.execute(complete, [first, claimed.token, worker.id, following])
    assert number(worker.conn, "SELECT limits FROM holdfast.job") == ["two"]
    (claimed,) = worker.claim()
    bad = json.dumps({"kind": "k", "payload": {}, "limits": []})
    with pytest.raises(psycopg.Error, match="next, limits: 1 to 3 keys"):
        worker.conn.execute(complete, [claimed.id, claimed.token, worker.id, bad])


def test_a_job_that_waited_for_a_chain_then_waits_for_its_limit(worker: Worker) -> None:
    (blocker,) = enqueue(worker.conn, job("m"))
    (holder,) = enqueue(worker.conn, limited("one"))
    (waiter,) = enqueue(worker.conn, limited("one", after=[blocker]))
    claimed = worker.claim()
    assert ids(claimed) == [blocker, holder]
    assert parked(worker.conn) == {}
    worker.end([each for each in claimed if each.id == blocker])
    assert worker.claim() == []
    assert parked(worker.conn) == {waiter: "one"}
    worker.end([each for each in claimed if each.id == holder])
    assert ids(worker.claim()) == [waiter]


def test_a_replay_has_the_limits_of_its_dead_letter(worker: Worker) -> None:
    (first,) = enqueue(worker.conn, limited("two:a", "one"))
    worker.end(worker.claim(), FAILED)
    assert run_sync(worker.conn, replay_job(first))
    assert number(worker.conn, "SELECT limits FROM holdfast.job") == ["two:a", "one"]


def test_order_keys_and_limits_of_the_same_jobs(worker: Worker) -> None:
    made = enqueue(worker.conn, *[limited("two", order_key=OrderKey(key)) for key in "abcabc"])
    claimed = worker.claim()
    assert ids(claimed) == made[:2]
    worker.end([claimed[0]], RETRIED)
    done = drain(worker)
    expire_leases(worker.conn, [claimed[1]], seconds=-60)
    worker.end([claimed[1]])
    done = [claimed[1].id, *done, *drain(worker)]
    assert sorted(done) == made
    for first, second in zip(made[:3], made[3:], strict=True):
        assert done.index(first) < done.index(second)


def test_a_promoted_job_behind_a_late_one_of_its_order_key_passes_it_on(worker: Worker) -> None:
    (holder,) = enqueue(worker.conn, limited("one"))
    claimed = worker.claim()
    made = enqueue(worker.conn, limited("one", order_key="o"))
    assert worker.claim() == []
    made += enqueue(worker.conn, limited("one"))
    assert worker.claim() == []
    worker.end(claimed)
    assert promoted(worker.conn) == {made[0]: "one"}
    # One with an earlier place, as a replay has.
    (early,) = enqueue(worker.conn, job("x", order_key="o"))
    worker.conn.execute("UPDATE holdfast.job SET order_seq = %s WHERE id = %s", [holder, early])
    assert ids(worker.claim()) in ([], [made[1]])
    assert made[1] in drain(worker) or statuses(worker.conn)[made[1]] == "processing"


def test_a_paused_queue_takes_no_room(connect: Connect, worker: Worker) -> None:
    both = Worker(connect(), queues=["default", "other"])
    enqueue(both.conn, *[limited("one", queue=queue) for queue in ("default", "other", "default", "other")])
    claimed = both.claim()
    both.conn.execute("INSERT INTO holdfast.queue (name, paused) VALUES (%s, true)", [claimed[0].queue])
    both.end(claimed)
    other = {"default": "other", "other": "default"}[claimed[0].queue]
    assert [each.queue for each in both.claim()] == [other]


def test_workers_with_parts_of_the_shards(connect: Connect, worker: Worker) -> None:
    halves = [Worker(connect()), Worker(connect())]
    made = enqueue(worker.conn, *[limited("two") for _ in range(130)])
    done: list[int] = []
    for _ in range(200):
        for index, half in enumerate(halves):
            claimed = half.claim(shards=Shards(index, 2))
            assert all((each.id & 63 < 32) == (index == 0) for each in claimed)
            half.end(claimed)
            done += [each.id for each in claimed]
        if len(done) == len(made):
            break
    assert sorted(done) == made


def test_a_raised_limit_lets_jobs_go_on_and_a_lowered_one_drains(worker: Worker) -> None:
    assert run_sync(worker.conn, set_limit("three", concurrency=0, starts=None, period_ms=None, burst=1, who="ann"))
    made = enqueue(worker.conn, *[limited("three") for _ in range(6)])
    assert worker.claim() == []
    set_limits(worker.conn, three=4)
    assert mend(worker.conn, "three") == 1
    claimed = worker.claim()
    assert ids(claimed) == made[:4]
    set_limits(worker.conn, three=2)
    worker.end(claimed[:2])
    assert worker.claim() == []
    worker.end(claimed[2:])
    assert len(worker.claim()) == 2


def test_nothing_else_is_mended(worker: Worker) -> None:
    enqueue(
        worker.conn,
        *[limited(f"one:{n % 3}", kind="km"[n % 2]) for n in range(12)],
        *[limited("three", "two") for _ in range(9)],
    )
    for _ in range(4):
        claimed = worker.claim(2)
        assert mend(worker.conn) == 0
        worker.end(claimed)
        assert mend(worker.conn) == 0


def test_a_key_without_a_promoted_job_is_mended(worker: Worker) -> None:
    made = enqueue(worker.conn, *[limited("one:a") for _ in range(3)], *[limited("one:b") for _ in range(3)])
    worker.end(worker.claim())
    worker.conn.execute("UPDATE holdfast.job SET status = 'blocked' WHERE status = 'pending'")
    assert worker.claim() == []
    assert mend(worker.conn) == 2
    assert sorted(drain(worker)) == [made[1], made[2], made[4], made[5]]


def test_starts_keep_to_their_rate(worker: Worker) -> None:
    set_rate(worker.conn, "slow", 20, 1000, burst=3)
    made = enqueue(worker.conn, *[limited("slow") for _ in range(12)])
    since = time.monotonic()
    done: list[int] = []
    first = worker.claim()
    assert ids(first) == made[:3]
    # One job waits for the next token, and the others wait behind it.
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job WHERE later") == 1
    assert len(parked(worker.conn)) == 8
    while len(done) < 9:
        done += ids(worker.claim())
        assert len(done) <= 20 * (time.monotonic() - since)
    assert done == made[3:]


def test_the_clock_of_a_rate_is_read_after_the_lock(worker: Worker, connect: Connect) -> None:
    """A claim in a transaction that began earlier does not take the tokens of the time since twice."""
    set_rate(worker.conn, "slow", 1, 3_600_000, burst=2)
    other = Worker(connect(), "k")
    enqueue(worker.conn, limited("slow"))
    enqueue(worker.conn, limited("slow"))
    enqueue(worker.conn, limited("slow"))
    with other.conn.transaction():
        assert number(other.conn, "SELECT now() IS NOT NULL")
        assert len(worker.claim(1)) == 1
        assert len(other.claim()) == 1
    assert worker.claim() == []


def test_a_claim_that_is_rolled_back_takes_no_token(worker: Worker) -> None:
    set_rate(worker.conn, "slow", 1, 3_600_000)
    (made,) = enqueue(worker.conn, limited("slow"))
    with worker.conn.transaction(force_rollback=True):
        assert ids(worker.claim()) == [made]
    assert ids(worker.claim()) == [made]
    assert number(worker.conn, "SELECT count(*) FROM holdfast.limit_rate") == 1


def test_a_raised_rate_is_in_force_at_once(worker: Worker) -> None:
    set_rate(worker.conn, "slow", 1, 3_600_000)
    made = enqueue(worker.conn, limited("slow"), limited("slow"))
    assert ids(worker.claim()) == made[:1]
    assert worker.claim() == []
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job WHERE later") == 1
    run_sync(worker.conn, set_limit("slow", concurrency=None, starts=1000, period_ms=1000, burst=5, who="ann"))
    mend(worker.conn, "slow")
    assert ids(worker.claim()) == made[1:]


def test_a_clock_that_was_ahead_delays_no_start(worker: Worker, connect: Connect) -> None:
    """The tokens of a key are never all there later than it takes for all of them to come."""
    set_rate(worker.conn, "slow", 60, 60_000, burst=2)
    made = enqueue(worker.conn, *[limited("slow") for _ in range(4)])
    assert ids(worker.claim()) == made[:2]
    worker.conn.execute("UPDATE holdfast.limit_rate SET full_at = full_at + interval '20 days'")
    worker.conn.execute("UPDATE holdfast.job SET available_at = available_at + interval '20 days' WHERE later")
    worker.conn.execute("INSERT INTO holdfast.landmark (at, last_id) VALUES (now() + interval '20 days', 0)")
    run_sync(worker.conn, set_back_jobs(since=0, limit=100))
    assert ids(worker.claim()) == made[2:]
    assert number(worker.conn, "SELECT full_at < now() + interval '3 seconds' FROM holdfast.limit_rate")


def test_what_the_code_declares_and_what_an_operator_sets(worker: Worker) -> None:
    conn = worker.conn

    def in_force() -> tuple[int | None, str | None, str | None]:
        (line,) = [line for line in run_sync(conn, list_limits()) if line.name == "mail"]
        return line.concurrency, line.rate, line.set_by

    assert run_sync(conn, declare_limits({"mail": Limit(concurrency=3, rate="100/min", burst=20)})) == ["mail"]
    assert run_sync(conn, declare_limits({"mail": Limit(concurrency=3, rate="100/min", burst=20)})) == []
    assert in_force() == (3, "100/min", None)
    assert run_sync(conn, set_limit("mail", concurrency=1, starts=None, period_ms=None, burst=1, who="ann"))
    run_sync(conn, declare_limits({"mail": Limit(concurrency=5)}))
    assert in_force() == (1, None, "ann")
    assert run_sync(conn, reset_limit("mail"))
    assert in_force() == (5, None, None)
    assert not run_sync(conn, set_limit("nothing", concurrency=1, starts=None, period_ms=None, burst=1, who="ann"))
    assert not run_sync(conn, reset_limit("one"))


def test_what_a_job_waits_for(worker: Worker) -> None:
    run_sync(worker.conn, declare_limits({"api": Limit(concurrency=2, rate="100/min", burst=9, by="customer")}))
    made = enqueue(worker.conn, *[limited("api:42") for _ in range(6)])
    assert len(worker.claim()) == 2
    wait = run_sync(worker.conn, read_limit_wait(made[4]))
    assert wait is not None
    assert wait.text == (
        "2 of 2 of limit api for customer 42 are taken, and at most 100/min of limit api for customer 42 start, "
        "and 2 wait before it"
    )
    assert run_sync(worker.conn, read_limit_wait(made[0])) is None
    (line,) = [line for line in run_sync(worker.conn, list_limits()) if line.name == "api"]
    assert (line.running, line.waiting, line.parameters) == (2, 4, ["customer"])


def test_a_job_of_two_limits_counts_in_both(worker: Worker) -> None:
    both, waits = enqueue(worker.conn, limited("three", "one"), limited("one"))
    assert ids(worker.claim()) == [both]
    wait = run_sync(worker.conn, read_limit_wait(waits))
    assert wait is not None
    assert wait.text.startswith("1 of 1 of limit one"), wait.text


def test_jobs_without_limits_and_tenants_pay_nothing(worker: Worker) -> None:
    conn = worker.conn
    conn.execute("SET track_functions = 'pl'")
    with conn.transaction():
        fill(conn, 50)
        worker.end(worker.claim(), RETRIED)
        pass_time(conn, 3600)
        worker.end(worker.claim())
        called = conn.execute(
            "SELECT funcname FROM pg_stat_xact_user_functions "
            "WHERE funcname LIKE '%limit%' OR funcname LIKE '%turn%' OR funcname IN ('take_keyed', 'pass_promotion')"
        ).fetchall()
        looked = conn.execute(
            "SELECT relname FROM pg_stat_xact_user_tables "
            "WHERE (relname LIKE 'limit%' OR relname = 'tenant') AND (seq_scan > 0 OR idx_scan > 0)"
        ).fetchall()
    assert called == []
    assert looked == []
    # Nothing was ever written to the indexes: they have their first page alone.
    for index in ("job_limit", "job_tenant"):
        assert number(conn, f"SELECT pg_relation_size('holdfast.{index}') = current_setting('block_size')::int")
