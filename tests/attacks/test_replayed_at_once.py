"""Two transactions replay one dead letter at once, at every isolation level: one of them does."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast import AlreadyReplayed
from holdfast._drivers import run_sync
from holdfast._store.search import replay_job
from tests.kit.sessions import await_waiting, background
from tests.kit.workers import FAILED, Worker, enqueue, job, number

if TYPE_CHECKING:
    from tests.kit.workers import Connect

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
PAIRS = list(product(LEVELS, LEVELS))
REFUSALS = AlreadyReplayed, psycopg.errors.SerializationFailure


class Stage:
    """A dead letter, and two people with a transaction each."""

    def __init__(self, connect: Connect, levels: tuple[str, str]) -> None:
        self.worker = Worker(connect())
        (self.dead,) = enqueue(self.worker.conn, job(max_attempts=1))
        self.fail_all()
        self.people = connect(), connect()
        self.levels = levels

    def begin(self) -> None:
        for person, level in zip(self.people, self.levels, strict=True):
            person.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
            number(person, "SELECT count(*) FROM holdfast.queue")  # takes the snapshot

    def fail_all(self) -> None:
        self.worker.end(self.worker.claim(), FAILED)

    def replay(self, person: psycopg.Connection[Any], *, again: bool = False) -> int | None:
        return run_sync(person, replay_job(self.dead, again=again))

    def live(self) -> int:
        live: int = number(self.worker.conn, "SELECT count(*) FROM holdfast.job WHERE replay_of = %s", self.dead)
        return live


@pytest.mark.parametrize("levels", PAIRS)
def test_after_the_commit_the_other_is_refused(connect: Connect, levels: tuple[str, str]) -> None:
    stage = Stage(connect, levels)
    # The second round is about a dead letter whose first replay failed.
    for first, second in (stage.people, stage.people[::-1]):
        stage.begin()
        replay = stage.replay(first)
        first.execute("COMMIT")
        with pytest.raises(REFUSALS):
            stage.replay(second)
        second.execute("ROLLBACK")
        with pytest.raises(AlreadyReplayed) as refused:
            stage.replay(second)
        assert refused.value.replay_id == replay
        assert stage.live() == 1
        stage.fail_all()


@pytest.mark.parametrize("levels", PAIRS)
def test_the_other_waits_and_replays_only_after_a_rollback(connect: Connect, levels: tuple[str, str]) -> None:
    stage = Stage(connect, levels)
    for (first, second), ending in product((stage.people, stage.people[::-1]), ("COMMIT", "ROLLBACK")):
        stage.begin()
        assert stage.replay(first) is not None
        with background(partial(stage.replay, second)) as waiting:
            await_waiting(stage.worker.conn, second.info.backend_pid)
            first.execute(ending.encode())
            if ending == "COMMIT":
                with pytest.raises(REFUSALS):
                    waiting.result(timeout=30)
            else:
                assert waiting.result(timeout=30) is not None
        second.execute("COMMIT")
        assert stage.live() == 1
        stage.fail_all()


@pytest.mark.parametrize("level", LEVELS)
def test_one_more_is_made_on_request(connect: Connect, level: str) -> None:
    stage = Stage(connect, (level, level))
    stage.begin()
    first, second = stage.people
    assert stage.replay(first) is not None
    assert stage.replay(first, again=True) is not None
    first.execute("COMMIT")
    second.execute("ROLLBACK")
    second.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
    assert stage.replay(second, again=True) is not None
    second.execute("COMMIT")
    assert stage.live() == 3


def test_two_requests_for_one_more_at_once_both_make_one(connect: Connect) -> None:
    stage = Stage(connect, ("READ COMMITTED", "READ COMMITTED"))
    stage.begin()
    first, second = stage.people
    assert stage.replay(first, again=True) is not None
    with background(partial(stage.replay, second, again=True)) as waiting:
        await_waiting(stage.worker.conn, second.info.backend_pid)
        first.execute("COMMIT")
        assert waiting.result(timeout=30) is not None
        second.execute("COMMIT")
    assert stage.live() == 2
