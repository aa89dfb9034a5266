"""PROTOCOL, sections 6 and 7: naming, counting down and going on, while others do the same."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.outcome import Completed
from holdfast._store.chain import read_blockers, release_waiters, repair_blockers
from holdfast._store.claim import claim_jobs
from holdfast._store.finish import Ending, complete_job, finish_jobs
from holdfast._store.lease import Held
from tests.kit.mutation import open_trap
from tests.kit.plans import buffers
from tests.kit.sessions import await_waiting, background
from tests.kit.workers import COMPLETED, Worker, enqueue, fill, job, number, statuses

if TYPE_CHECKING:
    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect


def test_two_finishers_at_once_count_down_twice(connect: Connect) -> None:
    """A check whether all the others are done finds that they are not: their transactions have not ended."""
    conn, other, watch = connect(), connect(), connect()
    open_trap(watch, "settle_patiently", ("ELSE '2 seconds' END", "ELSE '1 minute' END"))

    def finish_two() -> str:
        worker = Worker(watch)
        first, second = enqueue(watch, job(), job())
        (waiter,) = enqueue(watch, job("waits", after=[first, second]))
        tokens = {taken.id: taken.token for taken in worker.claim()}
        conn.execute("BEGIN")
        run_sync(conn, complete_job(worker.id, Held(first, tokens[first])))
        with background(lambda: run_sync(other, complete_job(worker.id, Held(second, tokens[second])))) as finish:
            await_waiting(watch, other.info.backend_pid)
            conn.execute("COMMIT")
            assert finish.result(timeout=30) == "completed"
        return statuses(watch)[waiter]

    assert finish_two() == "pending"
    open_trap(
        watch, "lock_waiters", ("ORDER BY w.id FOR NO KEY UPDATE);\n    EXCEPTION", "ORDER BY w.id);\n    EXCEPTION")
    )
    left = "(SELECT count(*) FROM holdfast.blocker o WHERE o.job_id = j.id AND o.status IS NULL) - c.ended"
    open_trap(
        watch,
        "update_waiters",
        ("ELSE j.blockers_left - c.ended END", f"ELSE {left} END"),
        ("OR j.blockers_left = c.ended) THEN 'pending'", f"OR {left} = 0) THEN 'pending'"),
    )
    assert finish_two() == "blocked", "for ever"


def test_a_chain_that_goes_on_while_it_is_named(connect: Connect) -> None:
    """The row that is waited for has gone when its lock comes free, and the next was not there when the look began."""
    conn, handler, user = connect(), connect(), connect()
    worker = Worker(conn)

    def name_meanwhile() -> str:
        (chain,) = enqueue(conn, job())
        (claimed,) = worker.claim()
        handler.execute("BEGIN")
        run_sync(handler, complete_job(worker.id, Held(chain, claimed.token), None, job("next").as_json()))
        with background(lambda: enqueue(user, job("waits", after=[chain]))) as naming:
            try:
                await_waiting(conn, user.info.backend_pid)
            finally:
                handler.execute("COMMIT")
            (waiter,) = naming.result(timeout=30)
        return statuses(conn)[waiter]

    assert name_meanwhile() == "blocked"
    open_trap(conn, "name_blockers", ("FOR round IN 1..100 LOOP", "FOR round IN 1..1 LOOP"))
    with pytest.raises(psycopg.errors.SerializationFailure):
        name_meanwhile()


def test_an_old_snapshot_misses_waiters(connect: Connect) -> None:
    """Why a job is completed in a READ COMMITTED transaction only."""
    conn, handler = connect(), connect()
    worker = Worker(conn)
    (chain,) = enqueue(conn, job())
    enqueue(conn, job("waits", after=[chain]))
    (claimed,) = worker.claim()
    open_trap(
        conn, "need_read_committed", ("IF current_setting('transaction_isolation') <> 'read committed'", "IF false")
    )
    handler.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    handler.execute("SELECT count(*) FROM holdfast.queue")
    (late,) = enqueue(conn, job("waits", after=[chain]))
    assert run_sync(handler, complete_job(worker.id, Held(chain, claimed.token))) == "completed"
    handler.execute("COMMIT")
    assert statuses(conn)[late] == "blocked", "though the chain has ended"
    assert run_sync(conn, repair_blockers()).rows == 1
    assert run_sync(conn, release_waiters()) == 1
    assert statuses(conn)[late] == "pending"


@pytest.mark.parametrize("links", [300, pytest.param(10_000, marks=pytest.mark.prove)])
def test_the_last_link_of_a_long_chain_costs_what_the_first_did(connect: Connect, links: int) -> None:
    conn = connect()
    worker = Worker(conn)
    (chain,) = enqueue(conn, job())
    following = Completed(None, job().as_json())
    cost: dict[int, int] = {}
    for link in range(links + 1):
        claimed = worker.claim()
        if link in {30, links}:
            cost[link] = buffers(conn, finish_jobs(worker.id, [Ending(claimed[0], following)]))
        worker.end(claimed, following)
    assert cost[links] < cost[30] * 1.5
    assert number(conn, "SELECT count(*) FROM holdfast.job_history WHERE chain_id = %s", chain) == links
    assert number(conn, "SELECT count(*) FROM holdfast.job") == 1


@pytest.mark.parametrize("crowd", ["waits before it", "is due before it", "waits for it"])
def test_a_chain_that_enters_a_crowded_key_costs_what_it_does_in_an_empty_one(connect: Connect, crowd: str) -> None:
    """Whether a job would wait for itself is found out without a look at every job of its key, or at every waiter."""
    conn = connect()
    worker = Worker(conn)
    chain, gate = enqueue(conn, job(), job(delay=timedelta(days=1)))
    (claimed,) = worker.claim()
    enqueue(conn, job("late", after=[chain]), *[job("late", after=[gate], order_key="full") for _ in range(3)])
    following = finish_jobs(worker.id, [Ending(claimed, Completed(None, job(order_key="full").as_json()))])
    cost: dict[int, int] = {}
    for jobs in (10, 100_000):
        key = "NULL" if crowd == "waits for it" else "'full'"
        waits = "NULL" if crowd == "is due before it" else "1"
        status = "'pending'" if crowd == "is due before it" else "'blocked'"
        fill(
            conn,
            jobs,
            kind="many",
            order_key=key,
            order_seq="currval('holdfast.job_id_seq')",
            blockers_left=waits,
            status=status,
        )
        if waits == "1":
            conn.execute(
                "INSERT INTO holdfast.blocker (job_id, chain_id, ordinal) "
                "SELECT id, %s, 1 FROM holdfast.job WHERE kind = 'many' ON CONFLICT DO NOTHING",
                [chain if crowd == "waits for it" else gate],
            )
        conn.execute("ANALYZE holdfast.job, holdfast.blocker")
        cost[jobs] = buffers(conn, following)
    assert cost[100_000] < cost[10] * 2


def test_waiting_jobs_do_not_slow_the_claims_of_others(connect: Connect) -> None:
    conn = connect()
    worker, other = Worker(conn, "k"), Worker(conn, "other")
    fill(conn, 100, kind="other")

    def cost() -> int:
        return buffers(conn, claim_jobs(other.id, {"default": 10}, other.leases))

    cost()
    before = cost()
    blockers = enqueue(conn, *[job()] * 2_000)
    for _ in range(20):
        enqueue(conn, job("other", after=blockers[::100]))
    (waiter,) = enqueue(conn, job("other", after=blockers))
    taken = worker.claim(1_000)
    worker.end(taken)
    assert cost() < before * 1.5
    worker.end(worker.claim(1_000))
    assert statuses(conn)[waiter] == "pending"


@pytest.mark.parametrize(
    ("blockers", "sessions"), [(500, 4), pytest.param(10_000, 8, marks=pytest.mark.prove)], ids=["small", "large"]
)
def test_a_diamond_runs_its_last_job_once(connect: Connect, blockers: int, sessions: int) -> None:
    """Many sessions finish the blockers of one job in random order, and all of them meet in its row."""
    conn = connect()
    parts = enqueue(conn, *[job() for _ in range(blockers)])
    (last,) = enqueue(conn, job("last", after=parts))
    hands = [Worker(connect()) for _ in range(sessions)]
    tips = [Worker(connect(), "last") for _ in range(sessions)]
    runs: list[int] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        while True:
            taken = hands[number].claim(rng.randint(1, 40))
            rng.shuffle(taken)
            for ended in (taken[: len(taken) // 2], taken[len(taken) // 2 :]):
                finish(hands[number], ended)
            tip = tips[number].claim()
            runs.extend(claimed.id for claimed in tip)
            finish(tips[number], tip)
            if not taken:
                return

    with ThreadPoolExecutor(sessions) as pool:
        for done in [pool.submit(work, number) for number in range(sessions)]:
            done.result(timeout=300)
    tip = tips[0].claim()
    assert runs + [claimed.id for claimed in tip] == [last]
    finish(tips[0], tip)
    assert number(conn, "SELECT count(*) FROM holdfast.job_history WHERE status = 'completed'") == blockers + 1
    assert run_sync(conn, read_blockers([last])) == {}


def finish(worker: Worker, jobs: list[ClaimedJob]) -> None:
    """Finish them as an engine does: again while another session has a row locked."""
    careful = False
    for _ in range(1_000):
        if not jobs:
            return
        try:
            answers = worker.end(jobs, COMPLETED, careful=careful)
        except psycopg.errors.LockNotAvailable:
            careful = True
        else:
            assert set(answers.values()) <= {"completed", "busy"}
            jobs = [claimed for claimed in jobs if answers[claimed.id] == "busy"]
    raise AssertionError("busy for ever")
