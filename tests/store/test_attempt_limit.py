"""Jobs without a limit of attempts: `max_attempts` is null in the row, and -1 where SQL asks for it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._model.outcome import Completed
from holdfast._model.retry import Retry
from holdfast._model.unique import Unique
from holdfast._store.enqueue import enqueue_job
from holdfast._store.search import replay_job
from tests.kit.workers import FAILED, RELEASED, RETRIED, Worker, enqueue, expire_leases, job, number, statuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import Connection

    from tests.kit.workers import Connect

MINUTES = Retry(None, base=timedelta(minutes=1), maximum=timedelta(hours=1), jitter=timedelta(0))
MOST = 32_767
"""The largest number that the columns hold."""

DOORS: dict[str, Callable[[Connection[Any]], object]] = {
    "one": lambda conn: run_sync(conn, enqueue_job(job(max_attempts=None))),
    "many": lambda conn: enqueue(conn, job(max_attempts=None)),
    "unique": lambda conn: enqueue(conn, job(max_attempts=None, unique=Unique("u"))),
    "replaced": lambda conn: (
        enqueue(conn, job(unique=Unique("u"))),
        enqueue(conn, job(max_attempts=None, unique=Unique("u", on_conflict="replace"))),
    ),
    "sql": lambda conn: conn.execute("SELECT holdfast.enqueue('k', max_attempts => -1)"),
    "sql, unique": lambda conn: conn.execute("SELECT holdfast.enqueue('k', max_attempts => -1, unique_key => 'u')"),
    "json": lambda conn: conn.execute(
        "SELECT * FROM holdfast.enqueue_jobs(%s)", [json.dumps([{"kind": "k", "max_attempts": -1}])]
    ),
    "group": lambda conn: conn.execute(
        "SELECT * FROM holdfast.enqueue_group('[]', %s, false)", [json.dumps({"kind": "k", "max_attempts": -1})]
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_takes_a_job_without_a_limit(connect: Connect, door: str) -> None:
    worker = Worker(connect())
    DOORS[door](worker.conn)
    assert worker.conn.execute("SELECT max_attempts FROM holdfast.job").fetchall() == [(None,)]
    assert [claimed.max_attempts for claimed in worker.claim()] == [None]


@pytest.mark.parametrize("given", ["", ", max_attempts => NULL"])
def test_null_in_sql_is_the_default(connect: Connect, given: str) -> None:
    conn = connect()
    conn.execute(f"SELECT holdfast.enqueue('k'{given})".encode())
    conn.execute("""SELECT * FROM holdfast.enqueue_jobs('[{"kind": "k", "max_attempts": null}, {"kind": "k"}]')""")
    assert conn.execute("SELECT max_attempts FROM holdfast.job").fetchall() == [(3,)] * 3


def test_a_chain_goes_on_with_a_job_without_a_limit(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job())
    worker.end(worker.claim(), Completed(None, job(max_attempts=None).as_json()))
    assert number(worker.conn, "SELECT max_attempts FROM holdfast.job") is None


def test_it_is_retried_past_every_limit(connect: Connect) -> None:
    worker = Worker(connect())
    (endless,) = enqueue(worker.conn, job(max_attempts=None))
    for attempt in (1, 1_000, 5_000):
        worker.conn.execute("UPDATE holdfast.job SET attempt = %s", [attempt - 1])
        (claimed,) = worker.claim()
        assert claimed.attempt == attempt
        assert worker.end([claimed], RETRIED) == {endless: "pending"}


def test_it_comes_back_from_workers_that_it_kills(connect: Connect) -> None:
    worker = Worker(connect())
    (endless,) = enqueue(worker.conn, job(max_attempts=None))
    for _ in range(5):
        assert len(worker.claim()) == 1
        expire_leases(worker.conn)
        assert [lost.answer for lost in worker.reap()] == ["pending"]
    assert statuses(worker.conn) == {endless: "pending"}
    assert number(worker.conn, "SELECT attempt FROM holdfast.job") == 5
    assert number(worker.conn, "SELECT suspect FROM holdfast.job") == 5, "it runs alone"


@pytest.mark.parametrize(("attempt", "minutes"), [(2, 2), (6, 32), (7, 60), (5_000, 60)])
def test_the_reaper_waits_as_long_as_the_policy_says(connect: Connect, attempt: int, minutes: int) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job(max_attempts=None))
    worker.claim()
    worker.conn.execute("UPDATE holdfast.job SET attempt = %s", [attempt])
    expire_leases(worker.conn)
    with worker.conn.transaction():
        worker.reap(MINUTES)
        waits = number(worker.conn, "SELECT available_at - now() FROM holdfast.job")
    assert timedelta(minutes=minutes) <= waits < timedelta(minutes=minutes, seconds=30)


def test_the_counters_stop_where_the_columns_end(connect: Connect) -> None:
    worker = Worker(connect())
    enqueue(worker.conn, job(max_attempts=None))
    worker.conn.execute("UPDATE holdfast.job SET attempt = %s", [MOST])
    (claimed,) = worker.claim()
    assert claimed.attempt == MOST
    worker.end([claimed], RETRIED)
    assert worker.claim()[0].attempt == MOST
    worker.conn.execute("UPDATE holdfast.job SET suspect = %s", [MOST])
    expire_leases(worker.conn)
    assert [lost.answer for lost in worker.reap()] == ["pending"]
    (alone,) = worker.claim_suspects()
    assert alone.attempt == MOST
    assert worker.end([alone], RELEASED) == {alone.id: "pending"}


def test_it_fails_at_once_on_request_and_its_replay_has_no_limit_either(connect: Connect) -> None:
    worker = Worker(connect())
    (endless,) = enqueue(worker.conn, job(max_attempts=None))
    assert worker.end(worker.claim(), FAILED) == {endless: "failed"}
    assert number(worker.conn, "SELECT max_attempts FROM holdfast.job_failed") is None
    run_sync(worker.conn, replay_job(endless))
    assert number(worker.conn, "SELECT max_attempts FROM holdfast.job") is None


@pytest.mark.parametrize("careful", [False, True])
def test_history_keeps_that_there_was_none(connect: Connect, careful: bool) -> None:
    worker = Worker(connect())
    (endless,) = enqueue(worker.conn, job(max_attempts=None))
    assert worker.end(worker.claim(), careful=careful) == {endless: "completed"}
    assert number(worker.conn, "SELECT max_attempts FROM holdfast.job_history") is None
