"""A finish does not wait for an open transaction: endings that need it are busy, and the rest is written."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._model.outcome import Completed
from holdfast._model.unique import Unique
from holdfast._store.chain import complete_chain
from holdfast._store.finish import Ending, complete_job, finish_jobs
from holdfast._store.lease import ClaimAnswer, Held
from tests.kit.mutation import open_trap
from tests.kit.sessions import await_waiting, background
from tests.kit.workers import COMPLETED, Worker, drain, enqueue, expire_leases, job, number, statuses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast._store.claim import ClaimedJob
    from tests.kit.workers import Connect

INNOCENT = 50
GOING_ON = Completed(None, job("n", unique=Unique("u")).as_json())


class Stage:
    """A worker with fifty plain jobs and one more, whose ending needs what a user's transaction keeps."""

    def __init__(self, connect: Connect) -> None:
        self.conn, self.user = connect(), connect()
        # A statement that waits without bound fails the test.
        self.conn.execute("SET statement_timeout = '20s'")
        self.worker = Worker(self.conn)
        self.innocent = enqueue(self.conn, *[job() for _ in range(INNOCENT)])
        (self.special,) = enqueue(self.conn, job(order_key="a"))
        self.claimed = self.worker.claim()
        assert len(self.claimed) == INNOCENT + 1

    @contextmanager
    def unique_key_taken(self) -> Iterator[None]:
        """Keep the unique key of the job that follows, in a transaction that is open."""
        with self.open():
            enqueue(self.user, job("n", unique=Unique("u"), queue="other"))
            yield

    @contextmanager
    def order_key_taken(self) -> Iterator[None]:
        """Keep the order key, in a transaction that deletes who waits there."""
        (waits,) = enqueue(self.conn, job(order_key="a"))
        with self.open():
            self.user.execute("SELECT holdfast.delete_job(%s)", [waits])
            yield

    @contextmanager
    def open(self) -> Iterator[None]:
        self.user.execute("BEGIN")
        try:
            yield
        finally:
            self.user.execute("ROLLBACK")

    def finish(self, claimed: list[ClaimedJob] | None = None, *, careful: bool = False) -> dict[int, ClaimAnswer]:
        endings = [Ending(c, GOING_ON if c.id == self.special else COMPLETED) for c in claimed or self.claimed]
        answers = run_sync(self.conn, finish_jobs(self.worker.id, endings, careful=careful))
        return {held.id: answer for held, answer in answers.items()}


TAKEN: dict[str, Callable[[Stage], Any]] = {"unique key": Stage.unique_key_taken, "order key": Stage.order_key_taken}
BOUNDS = {"unique key": "settle_apart", "order key": "lock_order_keys"}


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize("taken", TAKEN)
def test_what_has_to_wait_is_busy_and_the_rest_is_written(connect: Connect, taken: str, careful: bool) -> None:
    stage = Stage(connect)
    special = [claimed for claimed in stage.claimed if claimed.id == stage.special]
    with TAKEN[taken](stage):
        assert stage.finish(careful=careful)[stage.special] is ClaimAnswer.busy
        live = statuses(stage.conn)
        assert {live[innocent] for innocent in stage.innocent} == {"completed"}
        assert live[stage.special] == "processing"
        assert stage.worker.renew(special) == {}, "its lease goes on"
        assert stage.finish(special) == {stage.special: ClaimAnswer.busy}
    assert stage.finish(special) == {stage.special: ClaimAnswer.completed}
    assert number(stage.conn, "SELECT count(*) FROM holdfast.job WHERE kind = 'n'") == 1


@pytest.mark.parametrize("taken", TAKEN)
def test_with_the_trap_open_everybody_waits(connect: Connect, taken: str) -> None:
    stage = Stage(connect)
    open_trap(stage.conn, BOUNDS[taken], (" SET lock_timeout TO '100ms'\n", ""))
    with TAKEN[taken](stage), background(stage.finish) as finish:
        try:
            await_waiting(stage.user, stage.conn.info.backend_pid)
            assert "completed" not in statuses(stage.user).values()
        finally:
            stage.user.execute("ROLLBACK")
        finish.result(timeout=30)


def test_two_continuing_chains_do_not_wait_for_a_blocked_one(connect: Connect) -> None:
    """Together all of them are busy; one by one only the one is."""
    stage = Stage(connect)
    first, second = stage.claimed[0], stage.claimed[1]
    following = {first.id: "u", second.id: "v"}

    def finish(*claimed: ClaimedJob) -> dict[int, ClaimAnswer]:
        endings = [Ending(c, Completed(None, job("n", unique=Unique(following[c.id])).as_json())) for c in claimed]
        answers = run_sync(stage.conn, finish_jobs(stage.worker.id, endings))
        return {held.id: answer for held, answer in answers.items()}

    with stage.unique_key_taken():
        assert finish(first, second) == {first.id: ClaimAnswer.busy, second.id: ClaimAnswer.busy}
        assert finish(second) == {second.id: ClaimAnswer.completed}
        assert finish(first) == {first.id: ClaimAnswer.busy}


def test_a_reaper_skips_a_locked_key(connect: Connect) -> None:
    stage = Stage(connect)
    stage.conn.execute("UPDATE holdfast.job SET max_attempts = 1")
    expire_leases(stage.conn)
    with stage.order_key_taken():
        reaped = {lost.id: lost.answer for lost in stage.worker.reap()}
        assert reaped.pop(stage.special) == "busy"
        assert set(reaped.values()) == {"failed"}
    assert [(lost.id, lost.answer) for lost in stage.worker.reap()] == [(stage.special, "failed")]
    assert len(drain(stage.worker)) == 1


@pytest.mark.parametrize("taken", TAKEN)
def test_a_handlers_own_transaction_waits_for_two_seconds_at_most(connect: Connect, taken: str) -> None:
    stage = Stage(connect)
    held = next(Held(claimed.id, claimed.token) for claimed in stage.claimed if claimed.id == stage.special)
    with TAKEN[taken](stage):
        for statement in (
            complete_job(stage.worker.id, held, None, GOING_ON.next),
            complete_chain(stage.special, None, GOING_ON.next),
        ):
            with pytest.raises(
                psycopg.errors.LockNotAvailable, match=f"another transaction keeps job {stage.special} locked"
            ):
                run_sync(stage.conn, statement)
    assert stage.worker.renew([c for c in stage.claimed if c.id == stage.special]) == {}
