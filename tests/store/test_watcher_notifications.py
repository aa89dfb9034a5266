from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._model.job import Progress
from holdfast._model.outcome import Completed
from holdfast._store.chain import chain_ends, complete_chain, delete_chains
from holdfast._store.finish import complete_job
from holdfast._store.lease import Held, report_progress
from holdfast._store.maintenance import delete_watchers
from holdfast._store.search import cancel_job
from holdfast._store.sleeper import chain_channel, forget_watcher, others_ended, watch_chains, watch_horizon
from tests.kit.plans import explained, table_scans
from tests.kit.workers import FAILED, Worker, enqueue, expire_leases, job, number

if TYPE_CHECKING:
    import psycopg

    from tests.kit.workers import Connect


def listen(connect: Connect, name: str) -> psycopg.Connection[Any]:
    conn = connect()
    conn.execute(f"LISTEN {chain_channel(name)}".encode())
    return conn


def received(conn: psycopg.Connection[Any], *, limit: int) -> list[str]:
    """The notifications, once so many have arrived."""
    return sorted(notice.payload for notice in conn.notifies(timeout=20, stop_after=limit))


@pytest.mark.parametrize("how", ["short", "careful", "failed", "reaped", "cancelled", "outside", "own", "deleted"])
def test_a_watcher_is_notified_of_the_end(worker: Worker, connect: Connect, how: str) -> None:
    me = listen(connect, "me")
    chain, other = enqueue(worker.conn, job(max_attempts=1), job())
    run_sync(worker.conn, watch_chains("me", [chain, 4711]))
    run_sync(worker.conn, watch_chains("you", [other]))
    if how == "cancelled":
        run_sync(worker.conn, cancel_job(chain))
    else:
        taken = {taken.id: taken for taken in worker.claim()}
        match how:
            case "short" | "careful":
                worker.end(list(taken.values()), careful=how == "careful")
            case "failed":
                worker.end([taken[chain]], FAILED)
            case "reaped":
                expire_leases(worker.conn, [taken[chain]])
                worker.reap()
            case "outside":
                run_sync(worker.conn, complete_chain(chain))
            case "own":
                run_sync(worker.conn, complete_job(worker.id, Held(chain, taken[chain].token)))
            case _:
                run_sync(worker.conn, delete_chains([chain]))
    assert received(me, limit=1) == [f"ended {chain}"]
    assert run_sync(worker.conn, chain_ends([chain, other])).keys() >= {chain}


def test_a_chain_is_watched_by_its_first_job(worker: Worker, connect: Connect) -> None:
    me = listen(connect, "me")
    (chain,) = enqueue(worker.conn, job())
    run_sync(worker.conn, watch_chains("me", [chain]))
    worker.end(worker.claim(), Completed(None, job().as_json()))
    (claimed,) = worker.claim()
    run_sync(worker.conn, report_progress(worker.id, {Held(claimed.id, claimed.token): Progress(0.4, "page 12")}))
    worker.end([claimed])
    assert received(me, limit=2) == [f"ended {chain}", f"progress {chain} 0.4 page 12"]


def test_a_record_lasts_ten_seconds_and_is_forgotten(worker: Worker) -> None:
    (chain,) = enqueue(worker.conn, job())
    run_sync(worker.conn, watch_chains("me", [chain] * 3))
    assert number(worker.conn, "SELECT max(until) - now() <= interval '10 seconds' FROM holdfast.watcher")
    run_sync(worker.conn, forget_watcher("me"))
    assert number(worker.conn, "SELECT count(*) FROM holdfast.watcher") == 0
    run_sync(worker.conn, watch_chains("me", [chain]))
    worker.conn.execute("UPDATE holdfast.watcher SET until = now() - interval '1 hour'")
    run_sync(worker.conn, watch_chains("me", [chain]))
    assert run_sync(worker.conn, delete_watchers()) == 1


def test_an_early_look_is_known(worker: Worker, connect: Connect) -> None:
    """A finish that looked for watchers before the record was committed notifies none, so the watcher waits for it."""
    (chain,) = enqueue(worker.conn, job())
    (claimed,) = worker.claim()
    handler = connect()
    handler.execute("BEGIN")
    run_sync(handler, complete_job(worker.id, Held(chain, claimed.token)))
    run_sync(worker.conn, watch_chains("me", [chain]))
    horizon = run_sync(worker.conn, watch_horizon())
    assert run_sync(worker.conn, chain_ends([chain])) == {}
    assert not run_sync(worker.conn, others_ended(horizon.xmax))
    handler.execute("COMMIT")
    assert run_sync(worker.conn, others_ended(horizon.xmax))
    assert run_sync(worker.conn, chain_ends([chain])).keys() == {chain}


def test_without_watchers_there_is_only_one_look(worker: Worker) -> None:
    enqueue(worker.conn, *[job()] * 50)
    taken = worker.claim()
    with explained(worker.conn) as plans:
        worker.end(taken)
    assert sum("holdfast.watcher" in plan for plan in plans) == 1
    assert not any("notify_watchers" in plan for plan in plans)


def test_a_thousand_chains_are_asked_for_in_one_statement(worker: Worker) -> None:
    chains = enqueue(worker.conn, *[job()] * 1_000)
    run_sync(worker.conn, watch_chains("me", chains))
    for _ in range(5):
        worker.end(worker.claim(100), Completed("1"))
    worker.conn.execute("ANALYZE")
    ends: dict[int, Any] = {}
    scans = table_scans(worker.conn, "holdfast.job", lambda: ends.update(run_sync(worker.conn, chain_ends(chains))))
    assert (len(ends), scans) == (500, 0)
    assert {end.result for end in ends.values()} == {"1"}
