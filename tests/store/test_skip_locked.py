"""Calls that pass over locked rows wait for none of them: each SKIP LOCKED of the schema and of the statements.

Each is shown to matter: without it, the same call waits for the lock.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from psycopg.errors import LockNotAvailable

from holdfast._drivers import run_sync
from holdfast._model.job import Progress
from holdfast._model.schedule import Every
from holdfast._model.work import Lease
from holdfast._store import lease, maintenance, schedule
from holdfast._store import worker as workers
from holdfast._store.bulk_action import advance_bulk_action
from holdfast._store.claim import Floors, Served, claim_jobs
from holdfast._store.finish import Ending, finish_jobs
from holdfast._store.lease import Held
from holdfast._store.limit import delete_limit_rates
from holdfast._store.plain import claim_named, claim_plain
from holdfast._store.statement import Statement, statements
from holdfast._store.subscription import delete_readers
from tests.kit.limits import limited, set_limits, set_rate
from tests.kit.workers import COMPLETED, EVERYTHING, Worker, enqueue, expire_leases, fill, job, number

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect

LOCK = re.compile(r"(FOR (?:NO KEY UPDATE|UPDATE|KEY SHARE|SHARE)(?: OF \w+)?) SKIP LOCKED")
ENDED = "now() - interval '400 days'"
"""Of records that are deleted."""
# The one is for tests; the other answers `busy` after a tenth of a second of waiting, too.
LEFT_OUT = {"catch_up", "gather_jobs"}


class Call(NamedTuple):
    """A call that must not wait, and the rows that another transaction has locked."""

    statement: Statement[Any] | str
    locked: str = "job"


def named(worker: Worker) -> Call:
    return Call(claim_named(worker.id, enqueue(worker.conn, job()), worker.queues, worker.leases))


def plain(worker: Worker) -> Call:
    enqueue(worker.conn, job(), job())
    floors = Floors()
    floors.advance(worker.claim(1), reach=0, took=0)
    statement = claim_plain(worker.id, "default", 1, served=Served(["default"], worker.leases), floors=floors)
    assert statement is not None
    return Call(statement)


def one_lane(worker: Worker) -> Call:
    enqueue(worker.conn, job())
    return Call(claims(worker))


def two_lanes(worker: Worker) -> Call:
    enqueue(worker.conn, job(), job("m"))
    return Call(claims(worker))


def claims(worker: Worker) -> Statement[Any]:
    return claim_jobs(worker.id, {"default": 10}, worker.leases, reach=EVERYTHING)


def turns(worker: Worker) -> Call:
    fill(worker.conn, 1, tenant="'a'")
    lane = "'pending', '', 'default', 'k', 5::smallint"
    return Call(f"SELECT * FROM holdfast.next_turns({lane}, 9, 0::smallint, 63::smallint, '{{}}')")


def suspects(worker: Worker) -> Call:
    claimed(worker)
    expire_leases(worker.conn)
    worker.reap()
    return Call(lease.claim_suspects(worker.id, worker.queues, worker.leases, 1))


def promotion(worker: Worker) -> Call:
    worker.conn.execute(f"UPDATE holdfast.job SET later = true WHERE id = {enqueue(worker.conn, job())[0]}".encode())
    return Call("SELECT * FROM holdfast.promote_jobs(10, '1 year', NULL, NULL)")


def renewal(worker: Worker) -> Call:
    return Call(lease.renew_leases(worker.id, {held(worker): Lease()}))


def clock_was_set_back(worker: Worker) -> None:
    worker.conn.execute("UPDATE holdfast.worker SET heartbeat_at = now() + interval '1 hour'")
    worker.conn.execute("UPDATE holdfast.job SET locked_until = now() + interval '1 hour'")


def workers_ahead(worker: Worker) -> Call:
    clock_was_set_back(worker)
    return Call(lease.shorten_leases(), "worker")


def leases_ahead(worker: Worker) -> Call:
    claimed(worker)
    clock_was_set_back(worker)
    return Call(lease.shorten_leases())


def progress(worker: Worker) -> Call:
    return Call(lease.report_progress(worker.id, {held(worker): Progress(0.5)}))


def settling(worker: Worker) -> Call:
    return Call(finish(worker, claimed(worker)))


def finish(worker: Worker, taken: ClaimedJob) -> Statement[Any]:
    return finish_jobs(worker.id, [Ending(taken, COMPLETED)], careful=True)


def expired(worker: Worker) -> Call:
    claimed(worker)
    expire_leases(worker.conn)
    return Call("SELECT * FROM holdfast.reap_jobs(NULL, '{\"*\": [0]}', 0, '-infinity', 10)")


def time_of_the_pass(worker: Worker) -> Call:
    return Call(lease.reap_jobs({}, worker=worker.id), "worker")


def silent_worker(worker: Worker) -> Call:
    worker.conn.execute("UPDATE holdfast.worker SET heartbeat_at = now() - interval '1 hour'")
    return Call(lease.reap_jobs({}, worker=0), "worker")


def behind_in_its_key(worker: Worker) -> Call:
    """The second job of a key is parked with all that follow it: the third is of a kind that is not claimed."""
    first, second, third = enqueue(worker.conn, *[job(order_key="a") for _ in range(3)])
    return Call(f"SELECT * FROM holdfast.take_order_heads('{{{first},{second}}}', 100)", f"job WHERE id = {third}")


def successor(worker: Worker) -> Call:
    enqueue(worker.conn, job(order_key="a"), job(order_key="a"))
    (taken,) = worker.claim()
    return Call(finish(worker, taken), f"job WHERE id <> {taken.id}")


def chain_unheld(worker: Worker) -> Call:
    (chain,) = enqueue(worker.conn, job())
    return Call(f"SELECT holdfast.hold_chains('{{{chain}}}', false)")


def chain_held(worker: Worker) -> Call:
    call = chain_unheld(worker)
    worker.conn.execute("UPDATE holdfast.job SET awaited = true")
    return call


def blocked(worker: Worker) -> tuple[int, int]:
    """Return a job, and one that waits for its chain."""
    (first,) = enqueue(worker.conn, job())
    return first, enqueue(worker.conn, job(after=[first]))[0]


def waiter(worker: Worker) -> Call:
    first, waits = blocked(worker)
    return Call(f"SELECT * FROM holdfast.lock_waiters('{{{first}}}')", f"job WHERE id = {waits}")


def kept_end(worker: Worker) -> Call:
    first, _ = blocked(worker)
    end = f"ROW ({first}, {first}, 'completed', NULL, NULL, NULL, NULL)::holdfast.chain_end"
    worker.conn.execute(f"SELECT holdfast.keep_ends(ARRAY[{end}], true)".encode())
    return Call("SELECT holdfast.release_waiters(10)", "kept_end")


def crowd(worker: Worker) -> Call:
    return kept_end(worker)._replace(locked="job")


def made_ahead(worker: Worker) -> Call:
    enqueue(worker.conn, job())
    worker.conn.execute("UPDATE holdfast.job SET created_at = now() + interval '1 hour'")
    worker.conn.execute("INSERT INTO holdfast.landmark VALUES (now() + interval '1 hour', 0)")
    return Call(maintenance.set_back_jobs(since=0, limit=10))


def due_ahead(worker: Worker) -> Call:
    enqueue(worker.conn, job())
    worker.conn.execute("UPDATE holdfast.job SET available_at = now() + interval '1 hour'")
    worker.conn.execute("INSERT INTO holdfast.landmark VALUES (now() + interval '1 hour', 0)")
    return Call(maintenance.set_back_jobs(since=0, limit=10))


def census(worker: Worker) -> Call:
    worker.conn.execute(f"INSERT INTO holdfast.census VALUES ({ENDED}, 1, 1, '[]')".encode())
    return Call("SELECT holdfast.take_census('1 second', true)", "census")


def story(worker: Worker, call: str) -> Call:
    """Return a call with the story, its token and its worker."""
    taken = held(worker)
    return Call(f"SELECT * FROM holdfast.{call.format(f'{taken.id}, {taken.token}, {worker.id}')}")


def marking(worker: Worker) -> Call:
    return Call(f"SELECT holdfast.mark_stories('{{{held(worker).id}}}', '{{}}')")


def steps(worker: Worker) -> Call:
    taken = held(worker)
    step = {
        "nth": 1,
        "id": taken.id,
        "token": taken.token,
        "name": "a",
        "key": "",
        "result": None,
    }
    return Call(f"SELECT * FROM holdfast.save_steps({worker.id}, '{json.dumps([step])}')")


def limit_head(worker: Worker, *, remembered: str | None = None) -> Call:
    first, waits = in_a_limit(worker)
    remember_lane(worker, remembered)
    return Call(f"SELECT * FROM holdfast.lock_limit_heads('{{one}}', '{{{first}}}')", f"job WHERE id = {waits}")


def parked_in_a_limit(worker: Worker, *, remembered: str | None = None) -> Call:
    """A limit has room again for a parked job: a claim that meets another job of the key takes it too."""
    _, waits = in_a_limit(worker)
    set_limits(worker.conn, one=9)
    (third,) = enqueue(worker.conn, limited("one"))
    remember_lane(worker, remembered)
    return Call(
        f"SELECT * FROM holdfast.take_limited('{{{third}}}', 100, 10, false, 0::smallint, 63::smallint)",
        f"job WHERE id = {waits}",
    )


def remember_lane(worker: Worker, priority: str | None) -> None:
    """Let the session look for parked jobs behind this priority, and before that in those that are more urgent."""
    if priority:
        lane = f"ROW ('default', 'k', {priority}, 'infinity', 0)::holdfast.limit_lane"
        worker.conn.execute(f"SELECT holdfast.remember_limit('one', NULL, now(), ARRAY[{lane}])".encode())


def waits_for_a_token(worker: Worker) -> Call:
    set_rate(worker.conn, "slow", 1, 3_600_000)
    enqueue(worker.conn, limited("slow"), limited("slow"))
    worker.claim()
    worker.claim()
    return Call("SELECT * FROM holdfast.mend_limits(NULL, 'slow', 10)", "job WHERE later")


def token_ahead(worker: Worker) -> Call:
    waits_for_a_token(worker)
    worker.conn.execute("INSERT INTO holdfast.landmark VALUES (now() + interval '1 minute 1 second', 0)")
    return Call(maintenance.set_back_jobs(since=0, limit=10), "job WHERE later")


def promoted_in_a_limit(worker: Worker) -> Call:
    first, waits = in_a_limit(worker)
    return Call(f"SELECT holdfast.pass_promotion('{{{first}}}')", f"job WHERE id = {waits}")


def in_a_limit(worker: Worker) -> tuple[int, int]:
    """Return a running job, and one that is parked, because only one may run."""
    set_limits(worker.conn, one=1)
    first, waits = enqueue(worker.conn, limited("one"), limited("one"))
    worker.claim()
    worker.claim()
    assert number(worker.conn, "SELECT status::text FROM holdfast.job WHERE id = %s", waits) == "blocked"
    return first, waits


def slot(worker: Worker) -> Call:
    worker.conn.execute(
        "INSERT INTO holdfast.schedule (name, what, schedule, next_at) VALUES ('s', 'runner', 'every 60s', now())"
    )
    return Call(
        f"SELECT * FROM holdfast.claim_slot('s', {worker.id}, 1000, 'every 60s', "
        "(SELECT next_at FROM holdfast.schedule), now() + interval '1 minute')",
        "schedule",
    )


def periodic(worker: Worker) -> Call:
    run_sync(worker.conn, schedule.register_schedules([("s", Every(60), job())], at_start=["s"]))
    looks = run_sync(worker.conn, schedule.look_at_periodic_jobs(["s"]))
    return Call(schedule.enqueue_slots(looks), "schedule")


def record(table: str, values: str, statement: Statement[Any]) -> Callable[[Worker], Call]:
    def make(worker: Worker) -> Call:
        worker.conn.execute(f"INSERT INTO holdfast.{table} VALUES ({values})".encode())
        return Call(statement, table)

    return make


def bulk_action(worker: Worker) -> Call:
    worker.conn.execute(
        "INSERT INTO holdfast.bulk_action (last_id, action, statuses, who, role) "
        "VALUES (9, 'cancel', '{pending}', 'ann', 'operator')"
    )
    return Call(advance_bulk_action(), "bulk_action")


def old_worker(worker: Worker) -> Call:
    worker.conn.execute(f"UPDATE holdfast.worker SET heartbeat_at = {ENDED}, stopped_at = {ENDED}".encode())
    worker.conn.execute(
        "INSERT INTO holdfast.retention SELECT unnest('{job_history,job_failed,attempt,run}'::text[]), '9 days' "
        "ON CONFLICT DO NOTHING"
    )
    return Call(maintenance.delete_workers(), "worker")


def held(worker: Worker) -> Held:
    taken = claimed(worker)
    return Held(taken.id, taken.token)


def claimed(worker: Worker) -> ClaimedJob:
    enqueue(worker.conn, job())
    return worker.claim()[0]


# Where it stands, and which it is of those there.
CALLS: dict[tuple[str, int], Callable[[Worker], Call]] = {
    ("claim_named", 0): named,
    ("claim_plain", 0): plain,
    ("claim_jobs", 0): one_lane,
    ("claim_jobs", 1): two_lanes,
    ("claim_suspects", 0): suspects,
    ("next_turns", 0): turns,
    ("promote_jobs", 0): promotion,
    ("isolate_worker", 0): lambda worker: Call(lease.isolate_worker(worker.id, 9.0), "worker"),
    ("renew_leases", 0): renewal,
    ("shorten_leases", 0): workers_ahead,
    ("shorten_leases", 1): leases_ahead,
    ("report_progress", 0): progress,
    ("settle_batch", 0): settling,
    ("reap_jobs", 0): expired,
    ("statement reap_jobs", 0): time_of_the_pass,
    ("statement reap_jobs", 1): silent_worker,
    ("take_order_heads", 0): behind_in_its_key,
    ("lock_successors", 0): successor,
    ("hold_chains", 0): chain_unheld,
    ("hold_chains", 1): chain_held,
    ("lock_waiters", 0): waiter,
    ("release_waiters", 0): kept_end,
    ("release_waiters", 1): crowd,
    ("set_back_jobs", 0): made_ahead,
    ("set_back_jobs", 1): token_ahead,
    ("set_back_jobs", 2): due_ahead,
    ("take_census", 0): census,
    ("mark_stories", 0): marking,
    ("save_steps", 0): steps,
    ("hold_story", 0): lambda worker: story(worker, "hold_story({})"),
    ("save_step", 0): lambda worker: story(worker, "save_step({}, 'a', '', false, NULL)"),
    ("forget_failures", 0): lambda worker: story(worker, "forget_failures({}, '{{}}', '{{}}')"),
    ("count_attempts_anew", 0): lambda worker: story(worker, "count_attempts_anew({}, '{{}}')"),
    ("lock_limit_heads", 0): partial(limit_head, remembered="9"),
    ("lock_limit_heads", 1): limit_head,
    ("lock_limit_heads", 2): partial(limit_head, remembered="5"),
    ("take_limited", 0): partial(parked_in_a_limit, remembered="9"),
    ("take_limited", 1): parked_in_a_limit,
    ("mend_limits", 0): waits_for_a_token,
    ("pass_promotion", 0): promoted_in_a_limit,
    ("claim_slot", 0): slot,
    ("enqueue_slots", 0): periodic,
    ("advance_bulk_action", 0): bulk_action,
    ("beat_worker", 0): lambda worker: Call(workers.beat_worker(worker.id, {}), "worker"),
    ("delete_limit_rates", 0): record("limit_rate", f"'a', {ENDED}", delete_limit_rates()),
    ("delete_sleepers", 0): record("sleeper", f"{ENDED}, 1, 'a', '{{}}'", maintenance.delete_sleepers()),
    ("delete_watchers", 0): record("watcher", f"{ENDED}, 1, 'a'", maintenance.delete_watchers()),
    ("delete_sweeps", 0): record("sweep", f"{ENDED}, '1 second'", maintenance.delete_sweeps()),
    ("delete_readers", 0): record("reader", f"{ENDED}, 1, '{{}}'", delete_readers()),
    ("delete_readers", 1): record("member", f"{ENDED}, 1, 1", delete_readers()),
    ("delete_workers", 0): old_worker,
}


def test_none_is_forgotten(connect: Connect) -> None:
    functions = connect().execute("SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace")
    found = {(name, n) for name, source in functions for n in range(len(LOCK.findall(source)))}
    for name, sql in statements().items():
        place = f"statement {name}" if (name, 0) in found else name
        found |= {(place, n) for n in range(len(LOCK.findall(sql)))}
    assert {place for place in found if place[0] not in LEFT_OUT} == set(CALLS)


@pytest.mark.parametrize("place", CALLS, ids=lambda place: "-".join(map(str, place)))
def test_a_locked_row_is_passed_over(connect: Connect, place: tuple[str, int]) -> None:
    conn, other = connect(), connect()
    statement, locked = CALLS[place](Worker(conn, "k", "m"))
    if isinstance(statement, str):
        statement = Statement(statement, {}, list)
    other.execute("BEGIN")
    rows = other.execute(f"SELECT FROM holdfast.{locked} FOR UPDATE".encode())
    assert rows.rowcount > 0

    conn.execute("SET lock_timeout = '5s'")
    try:
        with conn.transaction(force_rollback=True):
            run_sync(conn, statement)
    except LockNotAvailable as exc:
        # It tries again for two seconds, and gives up by itself.
        if "another transaction keeps job" not in str(exc):
            raise

    conn.execute("SET lock_timeout = '300ms'")
    statement = without(conn, *place, statement)
    with pytest.raises(LockNotAvailable, match="due to lock timeout"):
        run_sync(conn, statement)


def without(conn: psycopg.Connection[Any], name: str, n: int, statement: Statement[Any]) -> Statement[Any]:
    """Take the SKIP LOCKED away: from the function of the database, or else from the statement."""
    if len(LOCK.findall(statement.sql)) > n:
        return statement._replace(sql=nth_dropped(statement.sql, n))
    conn.execute(nth_dropped(number(conn, "SELECT pg_get_functiondef(%s::regproc)", f"holdfast.{name}"), n).encode())
    return statement


def nth_dropped(sql: str, n: int) -> str:
    found = list(LOCK.finditer(sql))[n]
    return f"{sql[: found.start()]}{found[1]}{sql[found.end() :]}"
