"""Chains that move, and jobs that come after chains: before they moved, while they do, and there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._drivers import run_sync
from holdfast._model.job import Completed
from holdfast._store.chain import chain_ends, read_blockers, repair_blockers
from holdfast._store.moving import delete_moved, find_moved
from holdfast._store.search import replay_job
from tests.traps.workers import FAILED, drain, enqueue, job, statuses

if TYPE_CHECKING:
    from holdfast._model.job import Blocker
    from tests.leaving.two import Two
    from tests.traps.workers import Worker

NEXT = '{"kind": "k", "payload": {}}'


def blockers(worker: Worker, waiter: int) -> list[Blocker]:
    return run_sync(worker.conn, read_blockers([waiter]))[waiter]


def test_a_job_moves_after_the_chain_that_it_waits_for(two: Two) -> None:
    (first,) = enqueue(two.here.conn, job())
    (waiter,) = enqueue(two.here.conn, job(after=[first]))
    assert two.mover().move().arrived == 2
    there = two.there.worker()
    assert drain(there) == two.new_ids([first, waiter])


def test_it_gets_the_result_of_a_chain_that_ended_there_before_it_came(two: Two) -> None:
    (first,) = enqueue(two.here.conn, job())
    (waiter,) = enqueue(two.here.conn, job(after=[first]))
    there = two.there.worker()
    two.mover(limit=1).move()
    there.end(there.claim(), Completed('"a"'))
    assert two.mover().move().arrived == 1
    (claimed,) = there.claim()
    assert claimed.id == two.new_id(waiter)
    assert [(end.status, end.result) for end in blockers(there, claimed.id)] == [("completed", '"a"')]


def test_it_gets_the_results_of_chains_that_ended_here(two: Two) -> None:
    worker, there = two.here.worker(), two.there.worker()
    first, second = enqueue(two.here.conn, job(), job())
    (waiter,) = enqueue(two.here.conn, job(after=[second, first]))
    worker.end(worker.claim(1), Completed('"a"'))
    assert two.mover().move().arrived == 2
    there.end(there.claim(), Completed('"b"'))
    (claimed,) = there.claim()
    assert claimed.id == two.new_id(waiter)
    assert [end.result for end in blockers(there, claimed.id)] == ['"b"', '"a"']
    there.end([claimed], FAILED)
    again = run_sync(there.conn, replay_job(claimed.id))
    assert again is not None
    assert [end.result for end in blockers(there, again)] == ['"b"', '"a"'], "a replay finds both ends"
    assert drain(there) == [again]


def test_it_stays_while_the_chain_runs_here(two: Two) -> None:
    worker = two.here.worker()
    (first,) = enqueue(two.here.conn, job())
    (waiter,) = enqueue(two.here.conn, job(after=[first]))
    claimed = worker.claim()
    assert two.mover().move().departed == 0
    worker.end(claimed)
    assert two.mover().move().arrived == 1
    assert drain(two.there.worker()) == [two.new_id(waiter)]


def test_a_chain_that_failed_here_fails_the_job_there(two: Two) -> None:
    worker = two.here.worker()
    (first,) = enqueue(two.here.conn, job())
    (waiter,) = enqueue(two.here.conn, job(after=[first]))
    worker.end(worker.claim(), FAILED)
    two.mover().move()
    (claimed,) = two.there.worker().claim()
    assert claimed.id == two.new_id(waiter)
    assert claimed.blocker_failed


def test_a_row_of_jobs_that_wait_for_each_other_moves(two: Two) -> None:
    ids = enqueue(two.here.conn, job())
    for _ in range(5):
        ids += enqueue(two.here.conn, job(after=[ids[-1]]))
    assert two.mover().move().arrived == 6
    assert drain(two.there.worker()) == two.new_ids(ids)


def test_a_group_larger_than_a_batch_moves_with_its_last(two: Two) -> None:
    many = enqueue(two.here.conn, *[job() for _ in range(60)])
    (last,) = enqueue(two.here.conn, job(after=many))
    assert two.mover(batch=7).move().arrived == 61
    done = drain(two.there.worker())
    assert len(done) == 61
    assert done[-1] == two.new_id(last)


def test_a_chain_goes_on_there_under_its_new_id(two: Two) -> None:
    worker, there = two.here.worker(), two.there.worker()
    (first,) = enqueue(two.here.conn, job())
    (waiter,) = enqueue(two.here.conn, job(after=[first]))
    worker.end(worker.claim(), Completed(next=NEXT))
    ((second, chain),) = two.here.rows("SELECT id, chain_id FROM holdfast.job WHERE chain_id IS NOT NULL")
    assert chain == first
    two.mover().move()
    there.end(there.claim(), Completed(next=NEXT))
    (third,) = there.claim()
    assert third.chain_id == two.new_id(second)
    there.end([third], Completed('"end"'))
    (claimed,) = there.claim()
    assert claimed.id == two.new_id(waiter)
    assert [end.result for end in blockers(there, claimed.id)] == ['"end"']


def test_a_moved_chain_is_known_here_by_its_place_there(two: Two) -> None:
    (first,) = enqueue(two.here.conn, job())
    two.mover().move()
    end = run_sync(two.here.conn, chain_ends([first]))[first]
    assert (end.status, end.error, end.job_id) == ("moved", "there", two.new_id(first))


def test_a_job_that_names_a_moved_chain_waits_and_follows(two: Two) -> None:
    (first,) = enqueue(two.here.conn, job())
    two.mover().move()
    (waiter,) = enqueue(two.here.conn, job(after=[first]))
    assert run_sync(two.here.conn, repair_blockers()).repaired == 0
    assert statuses(two.here.conn)[waiter] == "blocked"
    assert two.mover().move().arrived == 1
    assert drain(two.there.worker()) == two.new_ids([first, waiter])


def test_a_job_that_waits_for_a_moved_chain_follows_after_any_time(two: Two) -> None:
    first, other = enqueue(two.here.conn, job(), job())
    two.mover(batch=1).move()
    (waiter,) = enqueue(two.here.conn, job(after=[first]))
    two.here.conn.execute("UPDATE holdfast.departure SET arrived_at = now() - interval '1 year' / seq")
    assert [run_sync(two.here.conn, delete_moved(limit=1)) for _ in range(3)] == [0, 1, 0]
    assert two.here.rows("SELECT job_id FROM holdfast.moved") == [(first,)]
    assert run_sync(two.here.conn, find_moved(other)) is None
    assert run_sync(two.here.conn, repair_blockers()).repaired == 0
    assert statuses(two.here.conn)[waiter] == "blocked"
    assert two.mover().move().arrived == 1
    assert drain(two.there.worker())[-1] == two.new_id(waiter)
    for column in ("arrived_at", "needed_at"):
        two.here.conn.execute(f"UPDATE holdfast.departure SET {column} = {column} - interval '15 days'".encode())
    assert run_sync(two.here.conn, delete_moved()) == 2, "no job waits for the chain now"


def test_a_running_job_may_continue_after_a_moved_chain(two: Two) -> None:
    worker = two.here.worker()
    first, other = enqueue(two.here.conn, job(), job())
    claimed = [one for one in worker.claim() if one.id == other or worker.end([one], FAILED) is None]
    replay = run_sync(two.here.conn, replay_job(first))
    assert replay is not None
    two.mover().move()
    worker.end(claimed, Completed(next=f'{{"kind": "k", "payload": {{}}, "blockers": [{first}]}}'))
    assert [status for id_, status in statuses(two.here.conn).items() if id_ > replay] == ["blocked"]
    assert two.mover().move().arrived == 1
    assert len(drain(two.there.worker())) == 2


def test_a_job_that_waits_for_a_duplicate_waits_for_the_job_that_it_is_a_duplicate_of(two: Two) -> None:
    (there,) = enqueue(two.there.conn, job(unique="u"))
    (first,) = enqueue(two.here.conn, job(unique="u"))
    (waiter,) = enqueue(two.here.conn, job(after=[first]))
    two.mover().move()
    assert drain(two.there.worker()) == [there, two.new_id(waiter)]


def test_a_key_stays_behind_a_job_that_waits_for_a_running_chain(two: Two) -> None:
    worker, there = two.here.worker(), two.there.worker()
    (running,) = enqueue(two.here.conn, job())
    claimed = worker.claim()
    before, waiter, behind = enqueue(
        two.here.conn, job(order_key="a"), job(order_key="a", after=[running]), job(order_key="a")
    )
    assert two.mover().move().arrived == 1
    assert drain(there) == [two.new_id(before)]
    worker.end(claimed)
    assert two.mover().move().arrived == 2
    assert drain(there) == two.new_ids([waiter, behind])


def test_two_live_jobs_of_one_chain_are_one_chain_there(two: Two) -> None:
    worker, there = two.here.worker(), two.there.worker()
    (dead,) = enqueue(two.here.conn, job())
    worker.end(worker.claim(), FAILED)
    replays = [run_sync(two.here.conn, replay_job(dead, again=True)) for _ in range(2)]
    assert two.mover().move().arrived == 2
    claimed = there.claim()
    assert len(replays) == len(claimed) == 2
    assert len({one.chain_id for one in claimed}) == 1


def test_a_cancelled_job_that_waited_moves_when_its_chain_has(two: Two) -> None:
    (first,) = enqueue(two.here.conn, job())
    (waiter,) = enqueue(two.here.conn, job(after=[first], order_key="a"))
    two.here.conn.execute("SELECT holdfast.cancel_job(%s)", [waiter])
    assert two.mover().move().arrived == 2
    there = two.there.worker()
    assert [one.cancelled for one in there.claim() if one.id == two.new_id(waiter)] == [True]
