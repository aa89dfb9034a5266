from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._drivers import run_sync
from holdfast._engine.jobs.complete import NOTE_LIMIT
from holdfast._model.job import Progress
from holdfast._store.job import read_chain
from holdfast._store.lease import Held, report_progress
from tests.kit.workers import RETRIED, Worker, enqueue, job, number

if TYPE_CHECKING:
    from tests.kit.workers import Connect


def test_it_is_in_the_row_while_the_attempt_lasts(connect: Connect) -> None:
    worker = Worker(connect())
    (first,) = enqueue(worker.conn, job())
    (claimed,) = worker.claim()
    held = Held(first, claimed.token)
    assert run_sync(worker.conn, report_progress(worker.id, {held: Progress(0.25, "page 1")})) == {held}
    (line,) = run_sync(worker.conn, read_chain(first))
    assert line.progress == Progress(0.25, "page 1")
    assert run_sync(worker.conn, report_progress(worker.id, {held: Progress(7, "x" * 999)})) == {held}
    (line,) = run_sync(worker.conn, read_chain(first))
    assert line.progress == Progress(1, "x" * NOTE_LIMIT)
    worker.end([claimed], RETRIED)
    (line,) = run_sync(worker.conn, read_chain(first))
    assert line.progress is None


def test_many_at_once_and_only_ones_own(connect: Connect) -> None:
    conn = connect()
    worker, other = Worker(conn), Worker(conn)
    enqueue(conn, *[job()] * 4)
    mine, theirs = worker.claim(2), other.claim(2)
    reports = {Held(taken.id, taken.token): Progress(0.5) for taken in mine + theirs}
    assert run_sync(conn, report_progress(worker.id, reports)) == {Held(taken.id, taken.token) for taken in mine}
    assert number(conn, "SELECT count(*) FROM holdfast.job WHERE progress IS NOT NULL") == 2
    assert run_sync(conn, report_progress(worker.id, {})) == set()


def test_a_locked_row_is_not_waited_for(connect: Connect) -> None:
    conn, handler = connect(), connect()
    worker = Worker(conn)
    enqueue(conn, job(), job())
    free, locked = worker.claim()
    handler.execute("BEGIN")
    handler.execute("SELECT FROM holdfast.job WHERE id = %s FOR UPDATE", [locked.id])
    conn.execute("SET lock_timeout = '5s'")
    reports = {Held(taken.id, taken.token): Progress(0.5) for taken in (free, locked)}
    assert run_sync(conn, report_progress(worker.id, reports)) == {Held(free.id, free.token)}


def test_no_index_is_touched(connect: Connect) -> None:
    conn = connect()
    worker = Worker(conn)
    enqueue(conn, job())
    (claimed,) = worker.claim()
    elsewhere = "SELECT n_tup_upd - n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'job'"
    with conn.transaction():
        before = number(conn, elsewhere)
        for step in range(1, 4):
            run_sync(conn, report_progress(worker.id, {Held(claimed.id, claimed.token): Progress(step / 4, "note")}))
        assert number(conn, elsewhere) == before
