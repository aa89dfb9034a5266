"""A job that is enqueued when another becomes a dead letter: in the same transaction, and once."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import InvalidJob, NewJob, OrderKey, Unique
from holdfast._drivers import run_sync
from holdfast._model.outcome import Completed
from holdfast._store.chain import read_blockers
from holdfast._store.search import cancel_job
from tests.kit.workers import (
    CANCELLED,
    COMPLETED,
    FAILED,
    RELEASED,
    RESCHEDULED,
    RETRIED,
    Worker,
    enqueue,
    expire_leases,
    job,
    number,
    statuses,
)

if TYPE_CHECKING:
    from holdfast._model.outcome import Outcome
    from tests.kit.workers import Connect

REPORT = job("report", '{"of":7}')


def reported(**options: Any) -> NewJob[Any]:
    return job(on_failure=REPORT, max_attempts=1, **options)


def reports(worker: Worker) -> int:
    return int(number(worker.conn, "SELECT count(*) FROM holdfast.job WHERE kind = 'report'"))


@pytest.fixture
def worker(connect: Connect) -> Worker:
    return Worker(connect(), "k", "report")


@pytest.mark.parametrize(
    ("outcome", "max_attempts", "expected"),
    [
        (FAILED, 9, 1),
        (RETRIED, 1, 1),
        (RETRIED, 2, 0),
        (COMPLETED, 1, 0),
        (CANCELLED, 1, 0),
        (RESCHEDULED, 1, 0),
        (RELEASED, 1, 0),
    ],
)
def test_only_a_dead_letter_writes_it(worker: Worker, outcome: Outcome, max_attempts: int, expected: int) -> None:
    enqueue(worker.conn, reported().options(max_attempts=max_attempts), job())
    worker.end(worker.claim(), outcome)
    assert reports(worker) == expected


def test_it_finds_the_failure(worker: Worker) -> None:
    [dead] = enqueue(worker.conn, reported(headers={"tenant": "a"}))
    worker.end(worker.claim(), FAILED)
    [report] = worker.claim()
    assert (report.kind, report.payload, report.read_headers()) == ("report", '{"of":7}', {"tenant": "a"})
    assert report.has_blockers
    assert not report.blocker_failed
    [blocker] = run_sync(worker.conn, read_blockers([report.id]))[report.id]
    assert (blocker.chain_id, blocker.status, blocker.error_code, blocker.error) == (
        dead,
        "failed",
        "Broken",
        "it broke",
    )
    worker.end([report])
    assert number(worker.conn, "SELECT count(*) FROM holdfast.blocker") == 0


def test_an_expired_lease_at_the_last_attempt_writes_it_once(worker: Worker) -> None:
    enqueue(worker.conn, reported())
    lost = worker.claim()
    expire_leases(worker.conn)
    assert [found.answer for found in worker.reap()] == ["failed"]
    worker.end(lost, FAILED)  # the worker was only slow: its outcome comes too late
    worker.reap()
    assert reports(worker) == 1


def test_a_job_that_ends_its_process_when_it_runs_alone_writes_it(worker: Worker) -> None:
    enqueue(worker.conn, reported().options(max_attempts=3))
    for answer in ("pending", "pending", "failed"):
        assert reports(worker) == 0
        assert len(worker.claim()) == 1
        expire_leases(worker.conn)
        assert [found.answer for found in worker.reap()] == [answer]
    assert reports(worker) == 1
    assert number(worker.conn, "SELECT last_error_code FROM holdfast.job_failed") == "crashed_alone"


def test_it_rolls_back_with_the_dead_letter(worker: Worker) -> None:
    [dead] = enqueue(worker.conn, reported())
    claimed = worker.claim()
    with worker.conn.transaction(force_rollback=True):
        worker.end(claimed, FAILED)
        assert reports(worker) == 1
    assert statuses(worker.conn) == {dead: "processing"}


def test_many_in_one_batch(worker: Worker) -> None:
    enqueue(worker.conn, *[reported() for _ in range(20)], *[job() for _ in range(20)])
    worker.end(worker.claim(), FAILED)
    assert reports(worker) == 20
    chains = worker.conn.execute("SELECT chain_id FROM holdfast.blocker ORDER BY job_id").fetchall()
    assert chains == worker.conn.execute("SELECT id FROM holdfast.job_failed ORDER BY id LIMIT 20").fetchall()


def test_a_replay_that_fails_writes_it_again(worker: Worker) -> None:
    [dead] = enqueue(worker.conn, reported())
    worker.end(worker.claim(), FAILED)
    worker.conn.execute("SELECT holdfast.replay_job(%s)", [dead])
    worker.end([found for found in worker.claim() if found.kind == "k"], FAILED)
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job WHERE kind = 'report'") == 2
    assert worker.conn.execute("SELECT DISTINCT chain_id FROM holdfast.blocker").fetchall() == [(dead,)]


def test_it_has_its_own_options(worker: Worker) -> None:
    report = REPORT.options(
        queue="alerts",
        priority=0,
        delay=3600,
        order_key="k",
        headers={"own": "1"},
        max_attempts=9,
        on_failure=job("last"),
    )
    enqueue(worker.conn, job(on_failure=report, max_attempts=1, headers={"tenant": "a"}))
    worker.end(worker.claim(), FAILED)
    row = worker.conn.execute(
        "SELECT queue, priority, available_at > now() + interval '59 minutes', order_key, order_seq = id, headers, "
        "max_attempts, on_failure ->> 'kind', later FROM holdfast.job WHERE kind = 'report'"
    ).fetchone()
    assert row == ("alerts", 0, True, "k", True, {"own": "1"}, 9, "last", True)


def test_a_job_for_its_own_failure_is_written_too(worker: Worker) -> None:
    enqueue(worker.conn, job(max_attempts=1, on_failure=job("report", max_attempts=1, on_failure=job("k"))))
    worker.end(worker.claim(), FAILED)
    worker.end(worker.claim(), FAILED)
    assert [found.kind for found in worker.claim()] == ["k"]


def test_its_unique_key_keeps_the_one_that_is_there(worker: Worker) -> None:
    enqueue(worker.conn, *[job(on_failure=REPORT.options(unique="one"), max_attempts=1) for _ in range(3)])
    worker.end(worker.claim(), FAILED)
    assert reports(worker) == 1
    assert number(worker.conn, "SELECT count(*) FROM holdfast.blocker") == 1


def test_its_unique_window_holds(worker: Worker) -> None:
    alert = REPORT.options(unique=Unique("one", window=timedelta(days=31)))
    enqueue(worker.conn, job(on_failure=alert, max_attempts=1), job(on_failure=alert, max_attempts=1))
    first, second = worker.claim()
    worker.end([first], FAILED)
    worker.end([found for found in worker.claim() if found.kind == "report"])
    worker.end([second], FAILED)
    assert reports(worker) == 0


def test_a_key_that_another_transaction_holds_delays_it_and_nothing_else(connect: Connect, worker: Worker) -> None:
    dead, other = enqueue(
        worker.conn, job(on_failure=REPORT.options(unique="one"), max_attempts=1), job(max_attempts=1)
    )
    claimed = worker.claim()
    holder = connect()
    with holder.transaction(force_rollback=True):
        enqueue(holder, REPORT.options(unique="one"))
        assert worker.end(claimed, FAILED)[dead] == "busy"
        assert statuses(worker.conn)[other] == "failed"
    worker.end(claimed[:1], FAILED)
    assert statuses(worker.conn)[dead] == "failed"
    assert reports(worker) == 1


def test_a_dead_letter_that_must_wait_for_its_waiter_writes_it_when_it_is_one(connect: Connect, worker: Worker) -> None:
    [dead] = enqueue(worker.conn, reported())
    [waiter] = enqueue(worker.conn, job(after=[dead]))
    [claimed] = worker.claim()
    holder = connect()
    with holder.transaction():
        holder.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [waiter])
        assert worker.end([claimed], FAILED)[dead] == "busy"
        assert reports(worker) == 0
    worker.end([claimed], FAILED)
    assert reports(worker) == 1


def test_the_next_job_of_a_chain_has_its_own(worker: Worker) -> None:
    [chain] = enqueue(worker.conn, job())
    worker.end(worker.claim(), Completed(next=reported().as_json()))
    worker.end(worker.claim(), FAILED)
    assert reports(worker) == 1
    assert worker.conn.execute("SELECT chain_id FROM holdfast.blocker").fetchall() == [(chain,)]


def test_a_replaced_job_has_the_new_one(worker: Worker) -> None:
    again = Unique("u", on_conflict="replace")
    for kind in ("first", "report"):
        enqueue(worker.conn, job(on_failure=job(kind), max_attempts=1, unique=again))
    worker.end(worker.claim(), FAILED)
    assert reports(worker) == 1


def test_a_cancelled_job_writes_nothing(worker: Worker) -> None:
    waiting, running = enqueue(worker.conn, reported(delay=60), reported())
    claimed = worker.claim()
    for target in (waiting, running):
        run_sync(worker.conn, cancel_job(target))
    worker.end(claimed, RETRIED)
    assert set(statuses(worker.conn).values()) == {"cancelled"}


def test_a_zombie_writes_nothing(worker: Worker) -> None:
    enqueue(worker.conn, reported(), reported())
    [first, second] = worker.claim()
    expire_leases(worker.conn, [first])
    worker.reap()
    assert worker.end([first, second], FAILED) == {first.id: "taken_by_another_worker", second.id: "failed"}
    assert reports(worker) == 2


def test_from_sql(worker: Worker) -> None:
    worker.conn.execute(
        """SELECT holdfast.enqueue('k', max_attempts => 1, on_failure => '{"kind": "report", "payload": {"of": 7}}')"""
    )
    worker.end(worker.claim(), FAILED)
    assert [found.payload for found in worker.claim()] == ['{"of": 7}']


@pytest.mark.parametrize(
    ("given", "states"),
    [
        ("[]", "on_failure: a JSON object expected, got array"),
        ("{}", "on_failure, kind: 1 to 200 bytes of text expected, got null"),
        ('{"kind": "k", "priority": 10}', "on_failure, priority: 0 to 9 expected, got 10"),
        ('{"kind": "k", "blockers": [1]}', "on_failure, blockers: null expected, got ids of chains"),
        (
            '{"kind": "k", "unique_key": "u", "on_conflict": "raise"}',
            "on_failure, on_conflict: keep expected, got raise",
        ),
        ('{"kind": "k", "limits": []}', "on_failure, limits: 1 to 3 keys expected, got 0"),
        ('{"kind": "k", "on_failure": {}}', "on_failure, on_failure, kind: 1 to 200 bytes of text expected, got null"),
    ],
)
def test_what_could_not_be_enqueued_later_is_refused_at_once(worker: Worker, given: str, states: str) -> None:
    for call in (
        "SELECT holdfast.enqueue('k', on_failure => %s::text::json)",
        """SELECT holdfast.enqueue_jobs('[{"kind": "k", "on_failure": ' || %s::text || '}]')""",
    ):
        with pytest.raises(psycopg.DatabaseError) as caught:
            worker.conn.execute(call.encode(), [given])
        assert caught.value.sqlstate == "HF002"
        assert str(caught.value).startswith(states)
    enqueue(worker.conn, job())
    [claimed] = worker.claim()
    with pytest.raises(psycopg.DatabaseError, match="on_failure"):
        worker.conn.execute(
            "SELECT holdfast.complete_job(%s, %s, %s, NULL, %s::text::json)",
            [claimed.id, claimed.token, worker.id, f'{{"kind": "k", "on_failure": {given}}}'],
        )


@pytest.mark.parametrize(
    ("wrong", "error", "states"),
    [
        ("report", TypeError, "on_failure: expected a job"),
        (REPORT.options(after=[7]), InvalidJob, "on_failure: report comes after other chains"),
        (REPORT.options(unique=Unique("u", on_conflict="raise")), InvalidJob, 'on_failure: report has .*"raise": use'),
    ],
)
def test_what_cannot_be_one_is_refused(wrong: Any, error: type[Exception], states: str) -> None:
    with pytest.raises(error, match=states):
        job(on_failure=wrong)


def test_it_is_kept_and_taken_away_like_any_option() -> None:
    assert reported().options(priority=1).envelope.on_failure == REPORT
    assert reported().options(on_failure=None).as_json() == job(max_attempts=1).as_json()
    text = job(on_failure=REPORT, order_key=OrderKey("k")).as_json("00-1-2-03")
    assert text == (
        '{"on_failure":{"kind":"report","payload":{"of":7}},"kind":"k","order_key":"k",'
        '"headers":{"traceparent":"00-1-2-03"},"payload":{}}'
    )
