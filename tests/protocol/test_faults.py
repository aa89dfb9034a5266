"""A job and what follows it: both or neither, wherever the store breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.new_job import OrderKey
from holdfast._model.outcome import Completed
from holdfast._model.unique import Unique
from holdfast._store.chain import complete_chain, delete_chains
from holdfast._store.finish import Ending, complete_job, finish_jobs
from holdfast._store.job import read_chain
from holdfast._store.lease import Held
from holdfast._store.sleeper import record_sleep, watch_chains
from tests.kit.workers import FAILED, RETRIED, Worker, drain, enqueue, job, number, statuses
from tests.protocol.faults import add_faults, break_at
from tests.protocol.zombies import images

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast._model.outcome import Outcome
    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect

Connection = psycopg.Connection[Any]
DONE = Completed("1")


class Scene:
    """Chains of every sort in the middle of their lives, with those who wait for them."""

    def __init__(self, conn: Connection) -> None:
        self.worker = worker = Worker(conn)
        conn.execute("CREATE TABLE public.ledger (entry text)")
        run_sync(conn, record_sleep(worker.id, ["default"], ["k"]))
        first, ended, alive = enqueue(conn, *[job()] * 3)
        self.chain, self.ended, self.alive = first, ended, alive
        worker.end([taken for taken in worker.claim() if taken.id == ended], DONE)
        conn.execute("UPDATE holdfast.job SET status = 'pending', lock_token = NULL, locked_by = NULL, attempt = 0")
        conn.execute("UPDATE holdfast.job SET available_at = now() + interval '30 minutes' WHERE id = %s", [alive])
        worker.end(worker.claim(), Completed(None, job(unique=Unique("u")).as_json()))
        keyed = enqueue(conn, *[job(order_key=OrderKey("a"))] * 2)
        waited = enqueue(conn, job(after=[ended]), job(), job())
        self.waiters = enqueue(
            conn,
            job("waits", after=[waited[0], first]),
            job("waits", after=[waited[1], waited[2]], if_blocker_fails="run"),
            job("waits", after=[waited[2]], order_key=OrderKey("a")),
        )
        plain = enqueue(conn, job(), job())
        run_sync(conn, watch_chains("me", [first, *waited]))
        self.held = {taken.id: taken for taken in worker.claim()}
        self.link = next(taken for taken in self.held.values() if taken.chain_id == first)
        self.next = job(unique=Unique("u"), after=[alive, ended]).as_json()
        self.outcomes: dict[int, Outcome] = {
            self.link.id: Completed(None, self.next),
            keyed[0]: Completed(None, job(order_key=OrderKey("a")).as_json()),
            waited[0]: DONE,
            waited[1]: FAILED,
            waited[2]: DONE,
            plain[0]: RETRIED,
            plain[1]: Completed(None, job(order_key=OrderKey("b")).as_json()),
        }
        assert self.held.keys() == self.outcomes.keys()

    @property
    def claimed(self) -> list[ClaimedJob]:
        return [self.held[job_id] for job_id in self.outcomes]


def everything(conn: Connection) -> dict[str, list[tuple[Any, ...]]]:
    return {**images(conn), "ledger": conn.execute("SELECT * FROM public.ledger").fetchall()}


def break_everywhere(connect: Connect, how: str, act: Callable[[Connection], None], undone: Connection) -> int:
    """Break at the first point, at the second, and so on, until it is done; nothing may be changed until then."""
    before = everything(undone)
    point = 1
    while True:
        assert point < 2_000
        conn = connect(autocommit=False)
        break_at(conn, point, how)
        conn.commit()
        try:
            act(conn)
            conn.commit()
        except psycopg.Error as error:
            assert isinstance(error, psycopg.errors.InternalError_ | psycopg.OperationalError), error  # noqa: PT017
            conn.close()
            assert everything(undone) == before, f"half of it was done at point {point}"
        else:
            conn.close()
            assert everything(undone) != before
            return point - 1
        point += 1


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["raise", pytest.param("die", marks=pytest.mark.prove)])
def test_a_batch_is_finished_whole_or_not_at_all(connect: Connect, how: str) -> None:
    conn = connect()
    scene = Scene(conn)
    add_faults(conn)
    endings = [Ending(taken, scene.outcomes[taken.id]) for taken in scene.claimed]
    answers = []

    def finish(broken: Connection) -> None:
        answers.append(run_sync(broken, finish_jobs(scene.worker.id, endings)))

    points = break_everywhere(connect, how, finish, conn)
    assert points > 100
    assert set(answers[0].values()) == {"completed", "failed", "pending"}
    ended, *_, following = run_sync(conn, read_chain(scene.chain))
    assert (following.status, ended.next_id) == ("blocked", scene.link.id)
    assert number(conn, "SELECT blockers_left FROM holdfast.job WHERE id = %s", following.id) == 1
    assert number(conn, "SELECT next_id FROM holdfast.job_history WHERE id = %s", scene.link.id) == following.id
    assert [statuses(conn)[waiter] for waiter in scene.waiters] == ["blocked", "pending", "pending"]


@pytest.mark.parametrize("how", [pytest.param("raise", marks=pytest.mark.prove), "die"])
def test_a_handlers_own_transaction_is_committed_whole_or_not_at_all(connect: Connect, how: str) -> None:
    conn = connect()
    scene = Scene(conn)
    add_faults(conn)
    held = Held(scene.link.id, scene.link.token)

    def handle(broken: Connection) -> None:
        broken.execute("INSERT INTO public.ledger VALUES ('paid')")
        assert run_sync(broken, complete_job(scene.worker.id, held, "1", scene.next)) == "completed"
        broken.execute("SELECT public.fault()")

    assert break_everywhere(connect, how, handle, conn) > 50
    assert conn.execute("SELECT entry FROM public.ledger").fetchall() == [("paid",)]
    assert statuses(conn)[scene.link.id] == "completed"
    assert len(run_sync(conn, read_chain(scene.chain))) == 3


@pytest.mark.nightly
@pytest.mark.parametrize("how", [pytest.param("raise", marks=pytest.mark.prove), "die"])
def test_a_chain_is_ended_from_outside_whole_or_not_at_all(connect: Connect, how: str) -> None:
    conn = connect()
    scene = Scene(conn)
    add_faults(conn)

    def approve(broken: Connection) -> None:
        assert run_sync(broken, complete_chain(scene.chain, '"approved"', scene.next)) == "completed"

    assert break_everywhere(connect, how, approve, conn) > 50
    assert [line.status for line in run_sync(conn, read_chain(scene.chain))] == ["completed", "completed", "blocked"]


@pytest.mark.nightly
def test_chains_are_deleted_whole_or_not_at_all(connect: Connect) -> None:
    conn = connect()
    scene = Scene(conn)
    add_faults(conn)

    def delete(broken: Connection) -> None:
        run_sync(broken, delete_chains([scene.chain, scene.ended], cascade=True))

    assert break_everywhere(connect, "raise", delete, conn) > 50
    assert run_sync(conn, read_chain(scene.chain)) == ()
    assert scene.waiters[0] not in statuses(conn)


def test_where_nothing_breaks_everything_goes_on(connect: Connect) -> None:
    """The points themselves change nothing."""
    conn = connect()
    scene = Scene(conn)
    add_faults(conn)
    for taken in scene.claimed:
        scene.worker.end([taken], scene.outcomes[taken.id])
    everyone = Worker(conn, "k", "waits")
    drain(everyone)
    assert set(statuses(conn).values()) == {"completed", "failed"}
    assert number(conn, "SELECT count(*) FROM holdfast.blocker") == 0
