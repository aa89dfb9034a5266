"""Decisions about an order key, a blocker or a chain are right at every isolation level, or refused there.

Each case lets others act between the snapshot of a user's transaction and the call. Whatever the call answers, and
after it was made again where it failed, no job may be left waiting for ever.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.errors import WrongIsolation
from holdfast._model.job import Progress
from holdfast._model.new_job import OrderKey
from holdfast._model.outcome import Completed, Rescheduled
from holdfast._model.unique import Unique
from holdfast._store.bulk_action import advance_bulk_action
from holdfast._store.chain import complete_chain, delete_chains
from holdfast._store.enqueue import enqueue_jobs
from holdfast._store.finish import Ending, complete_batch, complete_job
from holdfast._store.job import retry_job
from holdfast._store.lease import Held, release_strays, report_progress
from holdfast._store.limit import mend_limits
from holdfast._store.search import cancel_job, replay_job, resume_order_key
from holdfast._store.step import NewStep, count_attempts_anew, forget_failures, gather_jobs, save_steps, take_message
from tests.kit.bulk import begin
from tests.kit.mutation import open_trap
from tests.kit.workers import FAILED, Worker, drain, enqueue, expire_leases, job, number, statuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect

    Call: TypeAlias = Callable[[psycopg.Connection[Any]], object]

STRICT = ["REPEATABLE READ", "SERIALIZABLE"]
Fate: TypeAlias = Literal["right", "refused"]


class Stage:
    """A worker, and another client of the database."""

    def __init__(self, connect: Connect) -> None:
        self.worker = Worker(connect())
        self.user = connect()
        self.running: ClaimedJob

    def enqueue(self, **options: Any) -> int:
        (made,) = enqueue(self.worker.conn, job(**options))
        return made

    def as_worker(self, conn: psycopg.Connection[Any]) -> Worker:
        """Return the same worker on another connection."""
        same = object.__new__(Worker)
        same.__dict__ = {**self.worker.__dict__, "conn": conn}
        return same

    def do(self, query: str, *params: Any) -> None:
        self.worker.conn.execute(query.encode(), params)

    def head(self) -> ClaimedJob:
        """Claim the head of a key, before anything waits behind it."""
        self.enqueue(order_key="a")
        (self.running,) = self.worker.claim()
        return self.running

    def park(self) -> None:
        """Enqueue a job into the key, and let a claim park it there."""
        parked = self.enqueue(order_key="a")
        self.do("UPDATE holdfast.job SET available_at = now() WHERE id = %s", parked)
        assert self.worker.claim() == []
        assert statuses(self.worker.conn)[parked] == "blocked"

    def dead_letter(self, **options: Any) -> int:
        """Let a job of a key fail for good, and stop the key."""
        failed = self.enqueue(order_key=OrderKey("a", on_failure="block"), max_attempts=1, **options)
        self.worker.end(self.worker.claim(), FAILED)
        return failed

    def await_chain(self, chain: int) -> None:
        """Let a job come after the chain."""
        enqueue(self.worker.conn, job(after=[chain]))


@dataclass(frozen=True)
class Case:
    fate: Fate
    """What becomes of the call in a transaction that is stricter than READ COMMITTED."""
    prepare: Callable[[Stage], Call]
    meanwhile: Callable[[Stage], None] = Stage.park
    strands: bool = True
    """Whether this very course of events would leave somebody behind; a refusal is wider than that."""


def nothing(stage: Stage) -> None: ...


def finish_head(stage: Stage) -> Call:
    head = stage.head()
    return lambda conn: stage.as_worker(conn).end([head])


def finish_awaited(stage: Stage) -> Call:
    chain = stage.enqueue()
    stage.await_chain(chain)
    (claimed,) = stage.worker.claim()
    return lambda conn: stage.as_worker(conn).end([claimed])


def finish_plain(stage: Stage) -> Call:
    stage.enqueue()
    (claimed,) = stage.worker.claim()
    return lambda conn: stage.as_worker(conn).end([claimed])


def complete_head(stage: Stage) -> Call:
    head = stage.head()
    return lambda conn: run_sync(conn, complete_job(stage.worker.id, Held(head.id, head.token)))


def complete_head_of_batch(stage: Stage) -> Call:
    head = stage.head()
    return lambda conn: run_sync(conn, complete_batch(stage.worker.id, [Ending(head, Completed())]))


def complete_outside(stage: Stage) -> Call:
    head = stage.head()
    return lambda conn: run_sync(conn, complete_chain(head.id))


def delete_head(stage: Stage) -> Call:
    head = stage.enqueue(order_key="a")
    stage.do("UPDATE holdfast.job SET available_at = now() + interval '1 day'")
    return lambda conn: conn.execute("SELECT holdfast.delete_job(%s)", [head])


def delete_chain(stage: Stage) -> Call:
    head = stage.head()
    return lambda conn: run_sync(conn, delete_chains([head.id]))


def reap_head(stage: Stage) -> Call:
    stage.enqueue(order_key="a", max_attempts=1)
    head = stage.worker.claim()
    expire_leases(stage.worker.conn, head)
    return lambda conn: stage.as_worker(conn).reap()


def release_head(stage: Stage) -> Call:
    stage.head()
    return lambda conn: run_sync(conn, release_strays(stage.worker.id, []))


def claim_behind(stage: Stage) -> Call:
    """A transaction that has written something may claim, but not in a key that others use."""
    stage.head()

    def claim(conn: psycopg.Connection[Any]) -> None:
        conn.execute("CREATE TEMPORARY TABLE mine ON COMMIT DROP AS SELECT 1 AS one")
        worker = stage.as_worker(conn)
        worker.end(worker.claim())

    second = stage.enqueue(order_key="a")
    stage.do("UPDATE holdfast.job SET available_at = now() WHERE id = %s", second)
    return claim


def claim_suspect(stage: Stage) -> Call:
    stage.head()
    second = stage.enqueue(order_key="a")
    stage.do("UPDATE holdfast.job SET available_at = now(), suspect = 0 WHERE id = %s", second)
    return lambda conn: conn.execute(
        "SELECT * FROM holdfast.claim_suspects(%s, '{default}', '{k}', '{60000}', 10)", [stage.worker.id]
    )


def end_first(stage: Stage) -> None:
    stage.worker.end([stage.running])


def resume(stage: Stage) -> Call:
    stage.dead_letter()
    return lambda conn: run_sync(conn, resume_order_key("a"))


def replay_stopped(stage: Stage) -> Call:
    failed = stage.dead_letter()
    return lambda conn: run_sync(conn, replay_job(failed))


def replay_plain(stage: Stage) -> Call:
    failed = stage.enqueue(max_attempts=1)
    stage.worker.end(stage.worker.claim(), FAILED)
    return lambda conn: run_sync(conn, replay_job(failed))


def retry_stopped(stage: Stage) -> Call:
    failed = stage.dead_letter()
    return lambda conn: run_sync(conn, retry_job(failed))


def retry_plain(stage: Stage) -> Call:
    failed = stage.enqueue(max_attempts=1)
    stage.worker.end(stage.worker.claim(), FAILED)
    return lambda conn: run_sync(conn, retry_job(failed))


def act(action: str, prepare: Callable[[Stage], int]) -> Callable[[Stage], Call]:
    def prepared(stage: Stage) -> Call:
        target = prepare(stage)
        return lambda conn: conn.execute(
            "SELECT * FROM holdfast.act_on_jobs(%s, ARRAY[%s::bigint], ARRAY[NULL]::timestamptz[], now())",
            [action, target],
        )

    return prepared


def advance(stage: Stage) -> Call:
    stage.dead_letter()
    begin(stage.worker.conn)
    return lambda conn: run_sync(conn, advance_bulk_action())


def waiting_in_key(stage: Stage) -> int:
    stage.head()
    return stage.enqueue(order_key="a")


def cancel_waiting(stage: Stage) -> Call:
    waits = waiting_in_key(stage)
    return lambda conn: run_sync(conn, cancel_job(waits))


def cancel_awaited(stage: Stage) -> Call:
    chain = stage.enqueue()
    stage.await_chain(chain)
    return lambda conn: run_sync(conn, cancel_job(chain))


def name_more(stage: Stage) -> None:
    """Let one more job wait for the chain that is awaited already."""
    stage.await_chain(number(stage.worker.conn, "SELECT min(id) FROM holdfast.job"))


def reschedule(stage: Stage) -> Call:
    waits = waiting_in_key(stage)
    return lambda conn: conn.execute("SELECT holdfast.reschedule_job(%s, now())", [waits])


def enqueue_in_key(stage: Stage) -> Call:
    stage.head()
    return lambda conn: conn.execute("SELECT holdfast.enqueue('k', order_key => 'a')")


def enqueue_after(stage: Stage) -> Call:
    head = stage.head()
    return lambda conn: run_sync(conn, enqueue_jobs([job(after=[head.id])]))


def end_all(stage: Stage) -> None:
    drain(stage.worker)
    running = stage.worker.conn.execute(
        "SELECT id, lock_token FROM holdfast.job WHERE status = 'processing'"
    ).fetchall()
    for running_id, token in running:
        assert run_sync(stage.worker.conn, complete_job(stage.worker.id, Held(running_id, token))) == "completed"


def enqueue_group(stage: Stage) -> Call:
    first = job().as_json()
    return lambda conn: conn.execute(
        "SELECT * FROM holdfast.enqueue_group(%s, %s, false)", [f"[{first}, {first}]", job().as_json()]
    )


def replace(stage: Stage) -> Call:
    waits = job(unique=Unique("u", on_conflict="replace"), order_key="a")
    stage.head()
    enqueue(stage.worker.conn, waits)
    return lambda conn: run_sync(conn, enqueue_jobs([waits]))


def replace_after(stage: Stage) -> Call:
    chain = stage.enqueue()
    waits = job(unique=Unique("u", on_conflict="replace"), after=[chain])
    enqueue(stage.worker.conn, waits)
    return lambda conn: run_sync(conn, enqueue_jobs([waits]))


def renew(stage: Stage) -> Call:
    head = stage.head()
    return lambda conn: stage.as_worker(conn).renew([head])


def shorten(stage: Stage) -> Call:
    stage.head()
    return lambda conn: conn.execute("SELECT holdfast.shorten_leases()")


def mend(stage: Stage) -> Call:
    stage.head()
    return lambda conn: run_sync(conn, mend_limits(limit=10))


def report(stage: Stage) -> Call:
    head = stage.head()
    return lambda conn: run_sync(
        conn, report_progress(stage.worker.id, {Held(head.id, head.token): Progress(0.5, "half")})
    )


def story(stage: Stage) -> Call:
    """Let a worker hold a story; return how it looks for a message."""
    stage.enqueue()
    (stage.running,) = stage.worker.claim()
    held = Held(stage.running.id, stage.running.token)
    return lambda conn: run_sync(conn, take_message(stage.worker.id, held, ("m", None), None, beside=False))


def gather(stage: Stage) -> Call:
    story(stage)
    held = Held(stage.running.id, stage.running.token)
    return lambda conn: run_sync(conn, gather_jobs(stage.worker.id, held, ("g", None), [job()], beside=False))


def forget(stage: Stage) -> Call:
    story(stage)
    held = Held(stage.running.id, stage.running.token)
    return lambda conn: run_sync(conn, forget_failures(stage.worker.id, held, [("g", None)]))


def send(stage: Stage) -> Call:
    story(stage)
    return lambda conn: conn.execute("SELECT holdfast.send_message(%s, 'm', '1')", [stage.running.id])


def send_one(stage: Stage) -> None:
    stage.do("SELECT holdfast.send_message(%s, 'm', '1')", stage.running.id)


SUSPENDED = Rescheduled(timedelta(days=100))


def look_and_suspend(stage: Stage) -> None:
    held = Held(stage.running.id, stage.running.token)
    run_sync(stage.worker.conn, take_message(stage.worker.id, held, ("m", None), None, beside=False))
    stage.worker.end([stage.running], SUSPENDED)


def suspend(stage: Stage) -> Call:
    story(stage)(stage.worker.conn)
    return lambda conn: stage.as_worker(conn).end([stage.running], SUSPENDED)


def cancel_suspended(stage: Stage) -> Call:
    suspend(stage)(stage.worker.conn)
    return lambda conn: run_sync(conn, cancel_job(stage.running.id))


def send_another(stage: Stage) -> None:
    """Send a message for which the story does not wait yet."""
    stage.do("SELECT holdfast.send_message(%s, 'another', '1')", stage.running.id)


def finish_story(stage: Stage) -> Call:
    story(stage)(stage.worker.conn)
    return lambda conn: stage.as_worker(conn).end([stage.running])


def save(stage: Stage) -> Call:
    story(stage)
    held = Held(stage.running.id, stage.running.token)
    return lambda conn: run_sync(conn, save_steps(stage.worker.id, [NewStep(held, ("s", None), "1")]))


def count_anew(stage: Stage) -> Call:
    story(stage)
    held = Held(stage.running.id, stage.running.token)
    return lambda conn: run_sync(conn, count_attempts_anew(stage.worker.id, held, []))


def release(stage: Stage) -> Call:
    chain = stage.enqueue()
    stage.await_chain(chain)
    stage.do("UPDATE holdfast.job SET awaited = NULL")
    stage.worker.end(stage.worker.claim())
    stage.do("SELECT holdfast.repair_blockers(0, 100)")
    return lambda conn: conn.execute("SELECT holdfast.release_waiters(100)")


def set_back(stage: Stage) -> Call:
    stage.enqueue()
    stage.do("INSERT INTO holdfast.landmark VALUES (now() + interval '1 day', 100)")
    return lambda conn: conn.execute("SELECT holdfast.set_back_jobs(0, 100)")


CASES: dict[str, list[Case]] = {
    "claim_jobs": [Case("refused", claim_behind, end_first)],
    "claim_suspects": [Case("refused", claim_suspect, end_first)],
    "set_back_jobs": [Case("right", set_back, nothing)],
    "complete_jobs": [
        Case("refused", finish_awaited, name_more),
        Case("right", finish_plain, lambda stage: stage.await_chain(stage.enqueue())),
    ],
    "finish_jobs": [
        Case("refused", finish_head),
        Case("refused", suspend, send_one, strands=False),
        Case("refused", finish_story, send_one, strands=False),
    ],
    "save_steps": [Case("right", save, send_one)],
    "take_message": [Case("right", story, send_one)],
    "gather_jobs": [Case("right", gather, send_one)],
    "forget_failures": [Case("right", forget, send_one)],
    "count_attempts_anew": [Case("right", count_anew, send_one)],
    "send_message": [Case("refused", send, look_and_suspend, strands=False)],
    "release_strays": [Case("right", release_head)],
    "reap_jobs": [Case("refused", reap_head)],
    "renew_leases": [Case("right", renew)],
    "shorten_leases": [Case("right", shorten)],
    "report_progress": [Case("right", report)],
    "complete_job": [Case("refused", complete_head)],
    "complete_batch": [Case("refused", complete_head_of_batch)],
    "complete_chain": [Case("refused", complete_outside)],
    "delete_job": [Case("refused", delete_head)],
    "delete_chains": [Case("refused", delete_chain)],
    "cancel_job": [
        Case("right", cancel_waiting),
        Case("right", cancel_awaited, name_more),
        Case("right", cancel_suspended, send_another),
    ],
    "resume_order_key": [Case("refused", resume)],
    "replay_job": [Case("refused", replay_stopped, strands=False), Case("right", replay_plain, nothing)],
    "retry_job": [Case("refused", retry_stopped, strands=False), Case("right", retry_plain, nothing)],
    "reschedule_job": [Case("right", reschedule)],
    "act_on_jobs": [
        Case("refused", act("retry", Stage.dead_letter), strands=False),
        Case("refused", act("delete", waiting_in_key), strands=False),
        Case("right", act("cancel", waiting_in_key)),
        Case("right", act("reschedule", waiting_in_key)),
    ],
    "advance_bulk_action": [Case("refused", advance, strands=False)],
    "enqueue": [Case("right", enqueue_in_key)],
    "enqueue_jobs": [
        Case("right", enqueue_after, end_all),
        Case("right", replace),
        Case("refused", replace_after, nothing, strands=False),
    ],
    "enqueue_group": [Case("right", enqueue_group, nothing)],
    "release_waiters": [Case("right", release, nothing)],
    "mend_limits": [Case("right", mend, nothing)],
}
# Called by the others only, in whose cases they take part.
PARTS = {
    "enqueue_unique_jobs",
    "take_order_heads",
    "settle_jobs",
    "settle_apart",
    "settle_batch",
    "settle_in_parts",
    "settle_patiently",
    "leave_jobs",
    "enqueue_on_failure",
    "enqueue_members",
    "count_members",
    "end_members",
    "end_chains_of_groups",
    "give_back_jobs",
    "take_job",
    "hold_chains",
    "hold_named_chains",
    "name_blockers",
    "check_following",
    "end_chains",
    "update_waiters",
    "promote_jobs",
    "enqueue_limited_jobs",
    "take_limited",
    "take_keyed",
    "leave_limits",
    "promote_limited",
    "pass_promotion",
    "hold_story",
    "await_children",
    "restore_steps",
    "mark_stories",
    "rouse_stories",
}
# Writes as enqueue does: new jobs, which wait for nobody.
MAKE_JOBS = {"feed_jobs"}

WRITING = re.compile(
    r"\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM|MERGE\s+INTO)\s+(?:ONLY\s+)?holdfast\.(?:job|blocker|order_stop)\b"
)
CALLING = re.compile(r"\bholdfast\.(\w+)\s*\(")


def test_every_function_that_decides_is_known(connect: Connect) -> None:
    sources = dict(
        connect()
        .execute("SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace")
        .fetchall()
    )
    calls = {name: set(CALLING.findall(source)) - {name} for name, source in sources.items()}
    deciding = {name for name, source in sources.items() if WRITING.search(source)}
    while more := {name for name in calls if name not in deciding and calls[name] & deciding}:
        deciding |= more
    assert deciding == CASES.keys() | PARTS | MAKE_JOBS
    assert {called for name in deciding for called in calls[name]} >= PARTS


def outcome(stage: Stage, call: Call, level: str, meanwhile: Callable[[Stage], None]) -> str:
    user = stage.user
    user.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
    user.execute("SELECT count(*) FROM holdfast.job").fetchall()
    meanwhile(stage)
    try:
        call(user)
    except (WrongIsolation, psycopg.errors.SerializationFailure) as refusal:
        user.execute("ROLLBACK")
        return "refused" if isinstance(refusal, WrongIsolation) else "again"
    except psycopg.Error as refusal:
        user.execute("ROLLBACK")
        return "refused" if refusal.sqlstate == "HF003" else "again" if refusal.sqlstate == "40001" else str(refusal)
    user.execute("COMMIT")
    return "done"


@pytest.mark.nightly(daily=["act_on_jobs 1-SERIALIZABLE", "complete_job 0-READ COMMITTED"])
@pytest.mark.parametrize(
    "level", ["READ COMMITTED", pytest.param("REPEATABLE READ", marks=pytest.mark.prove), "SERIALIZABLE"]
)
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{name} {n}") for name, cases in CASES.items() for n, case in enumerate(cases)]
)
def test_no_job_is_left_behind(connect: Connect, case: Case, level: str) -> None:
    stage = Stage(connect)
    call = case.prepare(stage)
    found = outcome(stage, call, level, case.meanwhile)
    if level == "READ COMMITTED":
        assert found == "done"
    elif case.fate == "refused":
        assert found == "refused"
    else:
        assert found in {"done", "again"}
    if found != "done":
        call(stage.user)
    end_all(stage)
    drain(stage.worker)
    assert set(statuses(stage.worker.conn).values()) <= {"completed", "failed", "cancelled"}
    assert number(stage.worker.conn, "SELECT count(*) FROM holdfast.message") == 0


@pytest.mark.nightly
@pytest.mark.parametrize("level", STRICT)
def test_a_stricter_transaction_may_decide_about_its_own(connect: Connect, level: str) -> None:
    """As the users' own tests do."""
    conn = connect()
    conn.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
    worker = Worker(conn)
    with conn.transaction():
        ids = enqueue(conn, *[job(order_key="a")] * 3)
        conn.execute("UPDATE holdfast.job SET available_at = now()")
    assert drain(worker) == ids
    conn.execute("COMMIT")
    assert set(statuses(conn).values()) == {"completed"}


@pytest.mark.nightly(daily=["claim_jobs 0"])
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{name} {n}")
        for name, cases in CASES.items()
        for n, case in enumerate(cases)
        if case.fate == "refused" and case.strands
    ],
)
def test_without_the_refusal_a_job_is_left_behind(connect: Connect, case: Case) -> None:
    stage = Stage(connect)
    refusal = ("IF current_setting('transaction_isolation') <> 'read committed' THEN", "IF false THEN")
    open_trap(stage.worker.conn, "need_read_committed", refusal)
    call = case.prepare(stage)
    assert outcome(stage, call, "REPEATABLE READ", case.meanwhile) == "done"
    end_all(stage)
    drain(stage.worker)
    assert "blocked" in statuses(stage.worker.conn).values()
