from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._model.errors import ChainAwaited, DuplicateJob, InvalidJob, WrongIsolation
from holdfast._model.new_job import OrderKey
from holdfast._model.outcome import Completed
from holdfast._model.unique import Unique
from holdfast._store.chain import ChainEnd, chain_ends, complete_chain, delete_chains, list_chains
from holdfast._store.finish import complete_job
from holdfast._store.inspect import delete_job
from holdfast._store.job import read_chain
from holdfast._store.lease import ClaimAnswer, Held
from holdfast._store.search import cancel_job, replay_job
from tests.kit.mutation import open_trap
from tests.kit.sessions import await_waiting, background
from tests.kit.workers import (
    CANCELLED,
    FAILED,
    RETRIED,
    Worker,
    drain,
    enqueue,
    expire_leases,
    job,
    number,
    statuses,
)

if TYPE_CHECKING:
    from holdfast._model.new_job import NewJob
    from holdfast._model.outcome import Outcome
    from tests.kit.workers import Connect


def then(new: NewJob[Any], result: str | None = None) -> Completed:
    return Completed(result, new.as_json())


def live(worker: Worker, *columns: str) -> list[tuple[Any, ...]]:
    return worker.conn.execute(f"SELECT {', '.join(columns)} FROM holdfast.job ORDER BY id".encode()).fetchall()


def test_one_job_follows_another(worker: Worker) -> None:
    (first,) = enqueue(worker.conn, job())
    assert worker.end(worker.claim(), then(job(payload='{"n":2}', priority=1, delay=timedelta(hours=1)))) == {
        first: "completed"
    }
    ((second, chain, payload, priority, attempt),) = live(
        worker, "id", "chain_id", "payload::text", "priority", "attempt"
    )
    assert (chain, payload, priority, attempt) == (first, '{"n":2}', 1, 0)
    assert number(worker.conn, "SELECT next_id FROM holdfast.job_history WHERE id = %s", first) == second
    assert worker.claim() == [], "an hour later"
    assert run_sync(worker.conn, chain_ends([first])) == {}
    worker.conn.execute("UPDATE holdfast.job SET available_at = now()")
    (claimed,) = worker.claim()
    assert claimed.chain_id == first
    worker.end([claimed], Completed('"done"'))
    assert run_sync(worker.conn, chain_ends([first])) == {first: ChainEnd(second, "completed", '"done"', None, None)}
    assert [(line.id, line.next_id) for line in run_sync(worker.conn, read_chain(first))] == [
        (first, second),
        (second, None),
    ]


def test_a_chain_may_loop_and_keep_its_unique_key(worker: Worker) -> None:
    poll = job(unique=Unique("poll"), headers={"trace": "t"})
    (first,) = enqueue(worker.conn, poll)
    for _ in range(3):
        worker.end(worker.claim(), then(job(unique=Unique("poll"))))
    ((chain, unique_key, headers),) = live(worker, "chain_id", "unique_key", "headers::text")
    assert (chain, unique_key, headers) == (first, "poll", '{"trace":"t"}'), "headers run through a chain"
    handle_again = enqueue(worker.conn, poll)
    assert handle_again == [row[0] for row in live(worker, "id")]


def test_a_live_job_of_a_chain_is_handed_out_under_its_chain(worker: Worker) -> None:
    (first,) = enqueue(worker.conn, job(unique=Unique("u")))
    worker.end(worker.claim(), then(job(unique=Unique("u"))))
    row = worker.conn.execute(
        'SELECT chain_id, created FROM holdfast.enqueue_jobs(\'[{"kind":"k","unique_key":"u"}]\')'
    ).fetchall()
    assert row == [(first, False)]


def test_a_key_that_another_job_has_is_refused(worker: Worker) -> None:
    first, other = enqueue(worker.conn, job(), job(unique=Unique("taken"), delay=timedelta(hours=1)))
    claimed = worker.claim()
    with pytest.raises(DuplicateJob) as refusal:
        worker.end(claimed, then(job(unique=Unique("taken"))))
    assert refusal.value.existing_id == other
    assert statuses(worker.conn) == {first: "processing", other: "pending"}, "nothing is written"


@pytest.mark.parametrize(
    "following",
    ['{"kind":"k","unique_key":"u","unique_window_ms":1000}', '{"kind":"k","blockers":[4711]}', '{"payload":{}}'],
    ids=["a window", "an unknown chain", "no kind"],
)
def test_what_cannot_follow_is_refused(worker: Worker, following: str) -> None:
    (first,) = enqueue(worker.conn, job())
    with pytest.raises(InvalidJob):
        worker.end(worker.claim(), Completed(None, following))
    assert statuses(worker.conn) == {first: "processing"}


def test_only_a_completion_goes_on(worker: Worker) -> None:
    first, second = enqueue(worker.conn, job(), job())
    taken = worker.claim()
    following = job().as_json()
    endings = [
        {"id": taken[0].id, "token": taken[0].token, "outcome": "failed", "next": following},
        {"id": taken[1].id, "token": taken[1].token, "outcome": "retry", "next": following},
    ]
    worker.conn.execute(
        "SELECT * FROM holdfast.finish_jobs(%s, '{}', '{}', '{}', %s)", [worker.id, json.dumps(endings)]
    )
    assert statuses(worker.conn) == {first: "failed", second: "pending"}


def test_a_chain_keeps_its_place_in_its_order_key(worker: Worker) -> None:
    keyed = job(order_key=OrderKey("a"))
    first, second = enqueue(worker.conn, keyed, keyed)
    worker.end(worker.claim(), then(keyed))
    following = number(worker.conn, "SELECT max(id) FROM holdfast.job")
    assert statuses(worker.conn)[second] == "blocked", "what follows goes before it"
    assert drain(worker) == [following, second]
    assert [line.id for line in run_sync(worker.conn, read_chain(first))] == [first, following]


def test_a_chain_may_leave_its_order_key(worker: Worker) -> None:
    first, second = enqueue(worker.conn, *[job(order_key=OrderKey("a"))] * 2)
    worker.end(worker.claim(), then(job(order_key=OrderKey("b"))))
    assert set(drain(worker)) == {second, first + 2}


def test_a_replayed_dead_letter_goes_on_with_its_chain(worker: Worker) -> None:
    (first,) = enqueue(worker.conn, job())
    worker.end(worker.claim(), FAILED)
    assert run_sync(worker.conn, chain_ends([first]))[first].status == "failed"
    again = run_sync(worker.conn, replay_job(first))
    assert run_sync(worker.conn, chain_ends([first])) == {}
    (claimed,) = worker.claim()
    assert (claimed.id, claimed.chain_id) == (again, first)
    worker.end([claimed], then(job()))
    worker.end(worker.claim(), Completed("7"))
    assert run_sync(worker.conn, chain_ends([first]))[first][1:3] == ("completed", "7")
    assert [line.status for line in run_sync(worker.conn, read_chain(first))] == ["failed", "completed", "completed"]


def test_completing_in_ones_own_transaction(worker: Worker, connect: Connect) -> None:
    (first,) = enqueue(worker.conn, job())
    (claimed,) = worker.claim()
    held = Held(claimed.id, claimed.token)
    conn = connect()
    with conn.transaction(force_rollback=True):
        assert run_sync(conn, complete_job(worker.id, held, "1", job().as_json())) == "completed"
        assert worker.renew([claimed]) == {first: "busy"}
    assert statuses(conn) == {first: "processing"}
    with conn.transaction():
        assert worker.renew([claimed]) == {}
        assert run_sync(conn, complete_job(worker.id, held, "1", job().as_json())) == "completed"
    assert statuses(conn) == {first: "completed", first + 2: "pending"}
    assert run_sync(conn, complete_job(worker.id, held)) is ClaimAnswer.already_completed


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_completing_needs_new_snapshots(worker: Worker, level: str) -> None:
    (first,) = enqueue(worker.conn, job())
    (claimed,) = worker.claim()
    for statement in (
        complete_job(worker.id, Held(first, claimed.token)),
        complete_chain(first),
        delete_chains([first]),
        delete_job(first),
    ):
        worker.conn.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
        with pytest.raises(WrongIsolation, match=level):
            run_sync(worker.conn, statement)
        worker.conn.execute("ROLLBACK")


def test_completing_waits_for_a_moment(worker: Worker, connect: Connect) -> None:
    """A heartbeat, or another session that locks the row for a moment, does not fail a handler's transaction."""
    (first,) = enqueue(worker.conn, job())
    (claimed,) = worker.claim()
    other, conn = connect(), connect()
    open_trap(conn, "settle_patiently", ("ELSE '2 seconds' END", "ELSE '1 minute' END"))
    other.execute("BEGIN")
    other.execute("SELECT FROM holdfast.job FOR UPDATE")
    with background(lambda: run_sync(conn, complete_job(worker.id, Held(first, claimed.token)))) as completing:
        worker.conn.execute(
            """
            DO $$ BEGIN
                WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep') LOOP
                    PERFORM pg_stat_clear_snapshot();
                END LOOP;
            END $$
            """
        )
        other.execute("ROLLBACK")
        assert completing.result(timeout=30) == "completed"


@pytest.mark.parametrize("state", ["pending", "scheduled", "processing", "waiting", "parked"])
def test_a_chain_is_completed_from_outside(worker: Worker, connect: Connect, state: str) -> None:
    listener = connect()
    listener.execute(f"LISTEN holdfast_{worker.id}".encode())
    every: dict[str, dict[str, Any]] = {"scheduled": {"delay": timedelta(days=1)}, "parked": {"order_key": "a"}}
    options = every.get(state, {})
    if state in {"waiting", "parked"}:
        (before,) = enqueue(worker.conn, job(**options))
        if state == "parked":
            worker.claim()
        else:
            options = {"after": [before]}
    (chain,) = enqueue(worker.conn, job(**options))
    claimed = worker.claim() if state in {"processing", "parked"} else []
    assert run_sync(worker.conn, complete_chain(chain, '"ok"', job("next").as_json())) == "completed"
    ended, following = run_sync(worker.conn, read_chain(chain))
    assert (ended.status, ended.stored_result, ended.next_id) == ("completed", '"ok"', following.id)
    assert (following.kind, following.status) == ("next", "pending")
    assert number(worker.conn, "SELECT worker_id IS NULL FROM holdfast.job_history WHERE id = %s", chain)
    assert number(worker.conn, "SELECT count(*) FROM holdfast.attempt") == 0
    assert number(worker.conn, "SELECT count(*) FROM holdfast.blocker") == 0
    received = [
        notice.payload for notice in listener.notifies(timeout=0.2 if state != "processing" else 5, stop_after=1)
    ]
    if state == "processing":
        assert received == [f"lost {chain} {claimed[0].token} already_completed"]
        assert worker.end(claimed) == {chain: ClaimAnswer.already_completed}
    else:
        assert received == []
    assert run_sync(worker.conn, complete_chain(chain)) == "completed", "the next one"
    assert run_sync(worker.conn, complete_chain(chain)) == "already_ended"
    assert run_sync(worker.conn, complete_chain(4711)) == "not_found"


def test_completing_from_outside_lets_the_next_of_the_key_go_on(worker: Worker) -> None:
    first, second = enqueue(worker.conn, *[job(order_key="a")] * 2)
    worker.claim()
    assert run_sync(worker.conn, complete_chain(first)) == "completed"
    assert drain(worker) == [second]


def test_completing_from_outside_follows_a_chain_that_goes_on(worker: Worker, connect: Connect) -> None:
    (first,) = enqueue(worker.conn, job())
    (claimed,) = worker.claim()
    conn, handler = connect(), connect()
    with handler.transaction():
        run_sync(handler, complete_job(worker.id, Held(first, claimed.token), None, job().as_json()))
        with background(lambda: run_sync(conn, complete_chain(first, '"outside"'))) as completing:
            await_waiting(worker.conn, conn.info.backend_pid)
            handler.execute("COMMIT")
            handler.execute("BEGIN")
            assert completing.result(timeout=30) == "completed"
    assert [line.stored_result for line in run_sync(worker.conn, read_chain(first))] == [None, '"outside"']


def test_a_chain_is_deleted_whole(worker: Worker, connect: Connect) -> None:
    listener = connect()
    listener.execute(f"LISTEN holdfast_{worker.id}".encode())
    chain, dead, other = enqueue(worker.conn, job(), job(), job())
    first, second, third = worker.claim()
    worker.end([first], then(job()))
    worker.end([second], FAILED)
    worker.end([third], RETRIED)
    running = [taken for taken in worker.claim() if taken.id == other]
    assert run_sync(worker.conn, delete_chains([chain, dead, other, 4711])) == [chain, dead, other]
    assert statuses(worker.conn) == {}
    assert number(worker.conn, "SELECT count(*) FROM holdfast.attempt") == 0
    received = {notice.payload for notice in listener.notifies(timeout=5, stop_after=2)}
    assert f"lost {other} {running[0].token} not_found" in received
    assert worker.end(running) == {other: ClaimAnswer.not_found}
    assert run_sync(worker.conn, chain_ends([chain]))[chain].status == "not_found"


def test_a_chain_that_others_wait_for_is_not_deleted(worker: Worker) -> None:
    (chain,) = enqueue(worker.conn, job())
    (waiter,) = enqueue(worker.conn, job(after=[chain]))
    (far,) = enqueue(worker.conn, job(after=[waiter]))
    with pytest.raises(ChainAwaited) as refusal:
        run_sync(worker.conn, delete_chains([chain]))
    assert refusal.value.waiters == (waiter,)
    with pytest.raises(ChainAwaited):
        run_sync(worker.conn, delete_chains([chain, waiter]))
    assert set(run_sync(worker.conn, delete_chains([chain], cascade=True))) == {chain, waiter, far}
    assert statuses(worker.conn) == {}
    assert number(worker.conn, "SELECT count(*) FROM holdfast.blocker") == 0


def test_deleting_what_stopped_an_order_key_lets_it_go_on(worker: Worker) -> None:
    """There is nothing left to replay, so it would never go on."""
    stopping = OrderKey("a", on_failure="block")
    dead, first, second = enqueue(worker.conn, *[job(order_key=stopping) for _ in range(3)])
    worker.end(worker.claim(), FAILED)
    assert drain(worker) == []
    assert run_sync(worker.conn, delete_chains([second])) == [second]
    assert drain(worker) == [], "it is stopped for another's sake"
    assert run_sync(worker.conn, delete_chains([dead])) == [dead]
    assert number(worker.conn, "SELECT count(*) FROM holdfast.order_stop") == 0
    assert drain(worker) == [first]


def test_deleting_has_a_bound(worker: Worker) -> None:
    with pytest.raises(InvalidJob, match="1000 chains"):
        run_sync(worker.conn, delete_chains(range(1, 1002)))


def test_deleting_follows_a_chain_that_goes_on(worker: Worker, connect: Connect) -> None:
    (first,) = enqueue(worker.conn, job())
    (claimed,) = worker.claim()
    conn, handler = connect(), connect()
    handler.execute("BEGIN")
    run_sync(handler, complete_job(worker.id, Held(first, claimed.token), None, job().as_json()))
    with background(lambda: run_sync(conn, delete_chains([first]))) as deleting:
        await_waiting(worker.conn, conn.info.backend_pid)
        handler.execute("COMMIT")
        assert deleting.result(timeout=30) == [first]
    assert statuses(worker.conn) == {}


def test_a_chain_whose_end_was_deleted_is_not_found(worker: Worker) -> None:
    (first,) = enqueue(worker.conn, job())
    worker.end(worker.claim(), then(job()))
    second = number(worker.conn, "SELECT id FROM holdfast.job")
    assert run_sync(worker.conn, delete_job(second)) == "deleted"
    assert run_sync(worker.conn, chain_ends([first]))[first].status == "not_found"
    with pytest.raises(InvalidJob, match=f"no chain {first}"):
        enqueue(worker.conn, job(after=[first]))


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "called off", "reaped"])
def test_how_chains_end(worker: Worker, how: str) -> None:
    (chain,) = enqueue(worker.conn, job(max_attempts=1))
    if how == "called off":
        run_sync(worker.conn, cancel_job(chain))
    else:
        claimed = worker.claim()
        if how == "reaped":
            expire_leases(worker.conn)
            worker.reap()
        else:
            outcomes: dict[str, Outcome] = {"completed": Completed("1"), "failed": FAILED, "cancelled": CANCELLED}
            worker.end(claimed, outcomes[how])
    (end,) = run_sync(worker.conn, chain_ends([chain])).values()
    assert (
        end[:4]
        == {
            "completed": (chain, "completed", "1", None),
            "failed": (chain, "failed", None, "Broken"),
            "cancelled": (chain, "cancelled", None, None),
            "called off": (chain, "cancelled", None, "cancelled"),
            "reaped": (chain, "failed", None, "lease_expired"),
        }[how]
    )


def test_chains_are_listed(worker: Worker) -> None:
    a, b, c, d = enqueue(worker.conn, job("a"), job("a"), job("b"), job("a", delay=timedelta(days=1)))
    hand = Worker(worker.conn, "a", "b")
    hand.end([taken for taken in hand.claim() if taken.id == a], then(job("z")))
    hand.end([taken for taken in hand.claim() if taken.id == b], FAILED)
    expire_leases(worker.conn)
    hand.reap()
    hand.end([taken for taken in hand.claim() if taken.id == b], FAILED)
    hand.end([taken for taken in hand.claim(0) if taken.id == c])
    lines = run_sync(worker.conn, list_chains())
    assert [(line.id, line.kind, line.last_kind) for line in lines] == [
        (d, "a", "a"),
        (c, "b", "b"),
        (b, "a", "a"),
        (a, "a", "z"),
    ]
    assert [line.id for line in run_sync(worker.conn, list_chains(kind="a", limit=2))] == [d, b]
    assert [line.id for line in run_sync(worker.conn, list_chains(kind="a", before=b))] == [a]
    assert [line.id for line in run_sync(worker.conn, list_chains(status="failed"))] == [b]
    assert {line.id for line in run_sync(worker.conn, list_chains(status="pending"))} >= {a, d}
    with pytest.raises(ValueError, match="1 to 1000"):
        list_chains(limit=0)


def test_an_ended_job_cannot_be_continued_from_sql(worker: Worker) -> None:
    """The statements a chain needs are fenced: the second of two completions changes nothing."""
    (first,) = enqueue(worker.conn, job())
    claimed = worker.claim()
    worker.end(claimed, then(job()))
    assert worker.end(claimed, then(job())) == {first: ClaimAnswer.already_completed}
    assert number(worker.conn, "SELECT count(*) FROM holdfast.job") == 1


def test_nothing_new_is_in_the_session(worker: Worker) -> None:
    (first,) = enqueue(worker.conn, job())
    with worker.conn.transaction():
        run_sync(worker.conn, complete_chain(first))
        assert number(worker.conn, "SHOW lock_timeout") == "0"
        assert number(worker.conn, "SHOW enable_seqscan") == "on"
