"""Order keys that move: the order holds there, here and between the two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._cli.mover import Mover
from holdfast._drivers import run_sync
from holdfast._model.new_job import OrderKey
from holdfast._store.moving import Which, depart_jobs
from holdfast._store.search import replay_job, resume_order_key
from tests.databases import clone
from tests.leaving.two import Side, SlowPlace
from tests.traps.workers import FAILED, drain, enqueue, fill, job

if TYPE_CHECKING:
    from contextlib import ExitStack

    from tests.leaving.two import Two
    from tools.postgres import Server


def stops(side: Side) -> list[tuple[object, ...]]:
    return side.rows("SELECT order_key, job_id FROM holdfast.order_stop ORDER BY 1")


def test_the_order_holds_there(two: Two) -> None:
    ids = enqueue(two.here.conn, *[job(order_key=key, priority=9 - n) for n in range(9) for key in ("a", "b")])
    two.mover(batch=4).move()
    done = drain(two.there.worker())
    for mine in (ids[::2], ids[1::2]):
        assert [job for job in done if job in two.new_ids(mine)] == two.new_ids(mine)


def test_parked_jobs_move_behind_their_head(two: Two) -> None:
    worker = two.here.worker()
    ids = enqueue(two.here.conn, *[job(order_key="a") for _ in range(5)])
    (head,) = worker.claim()
    assert worker.claim() == []
    worker.end([head])
    assert two.mover().move().arrived == 4
    assert drain(two.there.worker()) == two.new_ids(ids[1:])


def test_a_key_of_which_a_job_runs_stays_whole(two: Two) -> None:
    worker = two.here.worker()
    ids = enqueue(two.here.conn, *[job(order_key="a") for _ in range(3)])
    claimed = worker.claim()
    assert [one.id for one in claimed] == ids[:1]
    assert two.mover().move().departed == 0
    worker.end(claimed)
    assert two.mover().move().arrived == 2
    assert drain(two.there.worker()) == two.new_ids(ids[1:])


def test_a_key_whose_lock_another_session_has_is_not_waited_for(two: Two) -> None:
    enqueue(two.here.conn, job(order_key="a"), job(order_key="b"))
    holder = two.here.connect()
    with holder.transaction():
        holder.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast.order_key'), hashtext('a'))")
        assert two.mover().move().arrived == 1
    assert two.mover().move().arrived == 1


def test_between_two_batches_of_a_key_nothing_of_it_runs_here(two: Two) -> None:
    ids = enqueue(two.here.conn, *[job(order_key="a") for _ in range(6)])
    worker = two.here.worker()
    met: list[object] = []

    def claim_here(step: str, _tally: object) -> None:
        met.extend(worker.claim() if step in {"departed", "arrived", "marked"} else ())

    assert two.mover(batch=2, progress=claim_here).move().arrived == 6
    assert met == []
    assert drain(two.there.worker()) == two.new_ids(ids)


def test_a_job_that_is_enqueued_here_later_follows(two: Two) -> None:
    first = enqueue(two.here.conn, job(order_key="a"))
    two.mover().move()
    later = enqueue(two.here.conn, job(order_key="a"))
    assert drain(two.here.worker()) == [], "before it, a job that has moved must run"
    tally = two.mover().move()
    assert (tally.arrived, tally.held) == (1, 1)
    assert drain(two.there.worker()) == two.new_ids(first + later)


def test_when_all_that_moved_has_ended_the_key_goes_on_here(two: Two) -> None:
    enqueue(two.here.conn, job(order_key="a"))
    two.mover().move()
    assert stops(two.here) == [("a", 0)]
    drain(two.there.worker())
    assert two.mover().move().held == 0
    assert stops(two.here) == []
    later = enqueue(two.here.conn, job(order_key="a"))
    assert drain(two.here.worker()) == later


def test_moved_jobs_come_before_those_that_wait_there(two: Two) -> None:
    old = enqueue(two.here.conn, *[job(order_key="a") for _ in range(3)])
    there = enqueue(two.there.conn, *[job(order_key="a") for _ in range(2)])
    two.mover(batch=1).move()
    assert drain(two.there.worker()) == two.new_ids(old) + there


def test_a_job_of_the_key_that_runs_there_is_not_joined(two: Two) -> None:
    worker = two.there.worker()
    running, behind = enqueue(two.there.conn, *[job(order_key="a")] * 2)
    claimed = worker.claim()
    old = enqueue(two.here.conn, job(order_key="a"))
    two.mover().move()
    assert worker.claim() == []
    worker.end(claimed)
    assert [one.id for one in claimed] == [running]
    assert drain(worker) == [*two.new_ids(old), behind]


def test_a_stopped_key_stays_until_it_is_resumed(two: Two) -> None:
    worker = two.here.worker()
    ids = enqueue(two.here.conn, *[job(order_key=OrderKey("a", on_failure="block")) for _ in range(3)])
    worker.end(worker.claim(), FAILED)
    assert two.mover().move().departed == 0
    replay = run_sync(two.here.conn, replay_job(ids[0]))
    assert replay is not None
    assert two.mover().move().arrived == 3
    assert drain(two.there.worker()) == two.new_ids([replay, *ids[1:]])


def test_a_job_that_fails_there_stops_its_key_there(two: Two) -> None:
    ids = enqueue(two.here.conn, *[job(order_key=OrderKey("a", on_failure="block")) for _ in range(2)])
    two.mover().move()
    worker = two.there.worker()
    worker.end(worker.claim(), FAILED)
    assert drain(worker) == []
    assert run_sync(two.there.conn, resume_order_key("a"))
    assert drain(worker) == two.new_ids(ids[1:])


def test_a_key_that_a_job_has_stopped_there_stays_held_here(two: Two) -> None:
    ids = enqueue(two.here.conn, job(order_key=OrderKey("a", on_failure="block")))
    two.mover().move()
    worker = two.there.worker()
    worker.end(worker.claim(), FAILED)
    assert two.mover().move().held == 1
    later = enqueue(two.here.conn, *[job(order_key="a") for _ in range(2)])
    assert two.here.worker().claim() == [], "the job before it has failed there, and must be dealt with first"
    two.mover(limit=1).move()
    assert worker.claim() == []
    replay = run_sync(two.there.conn, replay_job(two.new_id(ids[0])))
    assert replay is not None
    assert drain(worker) == [replay, two.new_id(later[0])]
    assert two.mover(limit=0).move().held == 0
    assert drain(two.here.worker()) == later[1:]


def test_resuming_a_key_does_not_end_the_hold_of_a_move(two: Two) -> None:
    enqueue(two.here.conn, *[job(order_key="a") for _ in range(2)])
    two.mover(limit=1).move()
    assert run_sync(two.here.conn, resume_order_key("a")) is False
    assert stops(two.here) == [("a", 0)]
    assert two.here.worker().claim() == []


def test_two_movers_deliver_the_batches_of_a_key_in_order(two: Two) -> None:
    """The first has taken a batch and stands still; the second brings it, and then its own."""
    ids = enqueue(two.here.conn, *[job(order_key="a") for _ in range(4)])
    place = two.there.place()
    run_sync(two.here.conn, depart_jobs(place.identity, "there", Which(), since=0, last=ids[-1], limit=2))
    worker = two.there.worker()
    ran: list[int] = []

    def run_there(step: str, _tally: object) -> None:
        if step == "arrived":
            jobs = worker.claim()
            worker.end(jobs)
            ran.extend(one.id for one in jobs)

    assert two.mover(batch=1, progress=run_there).move().arrived == 4
    assert ran + drain(worker) == two.new_ids(ids)


def test_a_key_is_not_released_while_another_mover_delivers_its_jobs(two: Two) -> None:
    """The batch is under way when the destination is asked, and has arrived when the key would be released."""
    ids = enqueue(two.here.conn, *[job(order_key="a") for _ in range(4)])
    there = two.there.place()
    run_sync(two.here.conn, depart_jobs(there.identity, "there", Which(), since=0, last=ids[-1], limit=2))
    other = two.mover(limit=0)
    asked = SlowPlace("there", two.there.connect(), "keys_under_way", other.move)
    mover = Mover(two.here.place(), asked, Which())
    mover.release()
    assert other.tally.arrived == 2
    assert (mover.tally.held, stops(two.here)) == (1, [("a", 0)])
    assert two.here.worker().claim() == [], "two of its jobs wait there"
    assert two.mover().move().arrived == 2
    assert drain(two.there.worker()) == two.new_ids(ids)


def test_a_key_moves_on_to_a_third_database_in_order(two: Two, server: Server, template: str, stack: ExitStack) -> None:
    third = Side("third", stack.enter_context(clone(server, template)), stack)
    third.conn.execute("UPDATE holdfast.identity SET id = gen_random_uuid()")
    old = enqueue(two.here.conn, *[job(order_key="a") for _ in range(3)])
    own = enqueue(two.there.conn, *[job(order_key="a") for _ in range(2)])
    two.mover().move()
    expected = two.new_ids(old) + own
    assert Mover(two.there.place(), third.place(), Which()).move().arrived == 5
    moved = dict(two.there.rows("SELECT job_id, new_id FROM holdfast.moved"))
    assert drain(third.worker()) == [moved[id_] for id_ in expected]


def test_a_key_is_held_while_its_jobs_are_in_a_third_database(
    two: Two, server: Server, template: str, stack: ExitStack
) -> None:
    third = Side("third", stack.enter_context(clone(server, template)), stack)
    third.conn.execute("UPDATE holdfast.identity SET id = gen_random_uuid()")
    enqueue(two.here.conn, job(order_key="a"))
    two.mover().move()
    onward = Mover(two.there.place(), third.place(), Which())
    onward.move()
    assert two.mover().move().held == 1
    assert stops(two.here) == stops(two.there) == [("a", 0)]
    assert len(drain(third.worker())) == 1
    assert two.mover().move().held == 1, "the second database still holds the key"
    assert onward.move().held == 0
    assert two.mover().move().held == 0
    assert stops(two.here) == stops(two.there) == []


def test_a_key_whose_jobs_came_back_goes_on_here(two: Two) -> None:
    ids = enqueue(two.here.conn, *[job(order_key="a") for _ in range(4)])
    two.mover(limit=2).move()
    back = two.mover_back()
    run_sync(two.there.conn, depart_jobs(two.here.place().identity, "here", Which(), since=0, last=99, limit=9))
    assert two.mover(limit=0).move().held == 1, "they are under way"
    assert back.move().held == 1
    assert stops(two.here) == []
    came = dict(two.there.rows("SELECT job_id, new_id FROM holdfast.moved"))
    assert drain(two.here.worker()) == [*(came[id_] for id_ in two.new_ids(ids[:2])), *ids[2:]]
    assert back.move().held == 0


def test_a_key_that_goes_to_one_database_does_not_go_to_another(
    two: Two, server: Server, template: str, stack: ExitStack
) -> None:
    third = Side("third", stack.enter_context(clone(server, template)), stack)
    third.conn.execute("UPDATE holdfast.identity SET id = gen_random_uuid()")
    enqueue(two.here.conn, *[job(order_key="a") for _ in range(3)])
    two.mover(limit=1).move()
    assert Mover(two.here.place(), third.place(), Which()).move().departed == 0
    assert two.mover().move().arrived == 2


def test_many_keys_move_in_bounded_calls(two: Two) -> None:
    fill(two.here.conn, 1_000, order_key="'key' || n % 250", order_seq="n")
    most = 0

    def locks(step: str, _tally: object) -> None:
        nonlocal most
        if step == "departed":
            sizes = two.here.rows("SELECT cardinality(job_ids) FROM holdfast.departure")
            most = max(most, *(size for (size,) in sizes))

    assert two.mover(progress=locks).move().arrived == 1_000
    assert most < 500, "a call has locked more than a hundred keys"
    places = two.there.rows("SELECT order_key, array_agg(order_seq ORDER BY order_seq) FROM holdfast.job GROUP BY 1")
    assert len(places) == 250
    assert all(list(seqs) == sorted(seqs) for _, seqs in places)
