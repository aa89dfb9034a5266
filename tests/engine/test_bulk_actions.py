"""Workers carry out bulk actions."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._engine.runners.ticker import Limits
from holdfast._store.bulk_action import stop_bulk_action
from holdfast._store.bulk_action_line import BulkAction, read_bulk_action
from tests.kit.bulk import begin, dead_letters, retried
from tests.kit.fleet import SOON, background, crew
from tests.kit.waiting import until
from tests.kit.workers import Worker, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from tests.kit.workers import Connect

SLOW = """
CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.005); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE INSERT ON holdfast.job FOR EACH ROW EXECUTE FUNCTION public.slow()
"""


@pytest.fixture
def worker(connect: Connect) -> Worker:
    return Worker(connect())


@pytest.fixture
def processes(database: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def read(conn: psycopg.Connection[Any], id_: int) -> BulkAction:
    line = run_sync(conn, read_bulk_action(id_))
    assert line is not None
    return line


def start(database: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "tests.kit.bulk", database])  # noqa: S603 - our own


def has_done_more_than(conn: psycopg.Connection[Any], id_: int, before: int) -> bool:
    return read(conn, id_).done > before


async def test_killed_twice_it_acts_on_every_job_exactly_once(
    database: str, worker: Worker, processes: list[subprocess.Popen[bytes]]
) -> None:
    dead = dead_letters(worker, 500)
    worker.conn.execute(SLOW.encode())
    id_ = begin(worker.conn, expected=500)
    reached = 0
    for severed in (True, False, None):
        processes.append(start(database))
        if severed is None:
            break
        # As one portion is committed the next is under way.
        await until(partial(has_done_more_than, worker.conn, id_, reached))
        processes[-1].send_signal(signal.SIGKILL)
        if severed:
            worker.conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                "AND query LIKE '%holdfast.advance_bulk_action%' AND pid <> pg_backend_pid()"
            )
        processes[-1].wait()
        reached = read(worker.conn, id_).done
        assert reached < 500
    await until(lambda: read(worker.conn, id_).ended_at is not None)
    assert retried(worker.conn) == dead
    assert (read(worker.conn, id_).done, read(worker.conn, id_).refused) == (500, 0)
    assert number(worker.conn, "SELECT count(*) FROM holdfast.replay WHERE nth > 1") == 0


async def test_workers_carry_it_on_until_it_is_stopped(database: str, worker: Worker) -> None:
    dead_letters(worker, 100)
    id_ = begin(worker.conn, rate=20.0)
    async with background(database, names=("bulk_actions",)), background(database, names=("bulk_actions",)):
        await until(lambda: read(worker.conn, id_).done >= 20)
        assert run_sync(worker.conn, stop_bulk_action(id_, "ann"))
        done = read(worker.conn, id_).done
    assert 20 <= done == len(retried(worker.conn)) < 100


async def test_one_tick_leaves_what_its_budget_does_not_allow(database: str, worker: Worker) -> None:
    dead_letters(worker, 30)
    id_ = begin(worker.conn)
    async with crew(database) as here:
        ticked = await here.ticker.tick(here.runners["bulk_actions"], Limits(items=12, seconds=SOON))
        assert ticked.counts == {"jobs": 12, "refused": 0}
        assert read(worker.conn, id_).done == 12
        assert (await here.ticker.tick(here.runners["bulk_actions"], Limits(None, SOON))).counts["jobs"] == 18
        assert (await here.ticker.tick(here.runners["bulk_actions"], Limits(None, SOON))).counts == {}
    assert read(worker.conn, id_).state == "completed"


async def test_nothing_fails_where_the_next_portion_is_not_due(database: str, worker: Worker) -> None:
    dead_letters(worker, 2)
    begin(worker.conn, rate=0.01)
    async with crew(database) as here:
        for done in (1, 0):
            ticked = await here.ticker.tick(here.runners["bulk_actions"], Limits(None, 0.5))
            assert (ticked.outcome, ticked.counts["jobs"]) == ("completed", done)


async def test_listeners_receive_the_jobs_that_a_retry_made(database: str, worker: Worker) -> None:
    dead = dead_letters(worker, 3)
    begin(worker.conn)
    async with crew(database) as here:
        await here.ticker.tick(here.runners["bulk_actions"], Limits(None, SOON))
        made = [one for one in here.reported if one.name == "job_enqueued"]
    assert [(one.details["cause"], one.details["source"]) for one in made] == [("replay", one) for one in dead]
