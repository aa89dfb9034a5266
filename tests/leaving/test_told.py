"""A job or chain that has moved is answered with its place: by the verbs, by a wait, by the API, and in the handler."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import Holdfast, Job, JobMoved
from holdfast._drivers import run_sync
from holdfast._model.job import Completed
from holdfast._ops.caller import Person, RequestRefused, Role
from holdfast._ops.jobs import read_story
from holdfast._ops.pool import SingleConnection
from holdfast._ops.redaction import Redaction
from holdfast._ops.requests import JobAction
from holdfast._ops.service import Service
from holdfast._store.moving import Which, depart_jobs
from tests.engine.pace import QUICK
from tests.engine.waiting import until, until_true
from tests.traps.workers import enqueue, job

if TYPE_CHECKING:
    from tests.leaving.two import Two


async def test_the_verbs_raise_with_the_place_and_the_new_id(two: Two) -> None:
    (old,) = enqueue(two.here.conn, job())
    two.mover().move()
    app = Holdfast(two.here.url)
    async with await psycopg.AsyncConnection.connect(two.here.url, autocommit=True) as conn:
        for ask in (app.get_job, app.get_chain):
            with pytest.raises(JobMoved) as caught:
                await ask(conn, old)
            assert (caught.value.job_id, caught.value.place, caught.value.moved_id) == (old, "there", two.new_id(old))


async def test_acting_on_what_has_moved_raises_and_leaves_the_transaction_usable(two: Two) -> None:
    (old,) = enqueue(two.here.conn, job())
    two.mover().move()
    app = Holdfast(two.here.url)
    async with await psycopg.AsyncConnection.connect(two.here.url) as conn:
        with pytest.raises(JobMoved) as caught:
            await app.cancel(conn, old)
        assert (caught.value.job_id, caught.value.place, caught.value.moved_id) == (old, "there", two.new_id(old))
        with pytest.raises(JobMoved) as caught:
            await app.complete_chain(conn, old, "done")
        assert (caught.value.place, caught.value.moved_id) == ("there", two.new_id(old))
        assert await app.cancel(conn, 4711) == "not_found"
        assert await app.complete_chain(conn, 4711, "done") == "not_found"
    with psycopg.connect(two.here.url) as conn:
        for act in (app.sync.cancel, lambda conn, id_: app.sync.complete_chain(conn, id_, None)):
            with pytest.raises(JobMoved):
                act(conn, old)
    assert two.there.live() == 1


def test_a_chain_whose_last_job_has_moved_is_named_by_its_new_chain(two: Two) -> None:
    worker = two.here.worker()
    (first,) = enqueue(two.here.conn, job())
    worker.end(worker.claim(), Completed(next=job("k").as_json()))
    two.mover().move()
    app = Holdfast(two.here.url)
    with pytest.raises(JobMoved) as caught:
        app.sync.complete_chain(two.here.conn, first, None)
    last = two.here.value("SELECT job_id FROM holdfast.moved")
    there = two.there.value("SELECT coalesce(chain_id, id) FROM holdfast.job")
    assert (caught.value.place, caught.value.moved_id) == ("there", there)
    assert app.sync.cancel(two.here.conn, first) == "not_found"
    with pytest.raises(JobMoved) as caught:
        app.sync.cancel(two.here.conn, last)
    assert caught.value.moved_id == two.new_id(last)


def test_what_has_left_and_not_arrived_has_no_id_there(two: Two) -> None:
    (old,) = enqueue(two.here.conn, job())
    run_sync(two.here.conn, depart_jobs(two.there.place().identity, "there", Which(), since=0, last=old, limit=9))
    app = Holdfast(two.here.url)
    for act in (app.sync.cancel, lambda conn, id_: app.sync.complete_chain(conn, id_, None)):
        with pytest.raises(JobMoved) as caught:
            act(two.here.conn, old)
        assert (caught.value.place, caught.value.moved_id) == ("there", None)


def test_a_job_that_departs_while_it_is_cancelled_has_moved(two: Two) -> None:
    (old,) = enqueue(two.here.conn, job())
    app, mover, caller = Holdfast(two.here.url), two.here.connect(), two.here.connect()
    with ThreadPoolExecutor() as threads:
        with mover.transaction():
            run_sync(mover, depart_jobs(two.there.place().identity, "there", Which(), since=0, last=old, limit=9))
            cancelling = threads.submit(app.sync.cancel, caller, old)
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s"
            until_true(lambda: two.here.value(waits, caller.info.backend_pid))
        with pytest.raises(JobMoved):
            cancelling.result(30)


async def test_the_api_says_where_a_job_is_that_it_did_not_cancel(two: Two) -> None:
    (old,) = enqueue(two.here.conn, job())
    two.mover().move()
    async with await psycopg.AsyncConnection.connect(two.here.url, autocommit=True) as conn:
        service = Service(SingleConnection(conn, timedelta(seconds=10)))
        action = JobAction(action="cancel", ids=[old, 4711], preview=False)
        done = await service.act_on_jobs(action, Person("me", Role.DEVELOPER))
    assert [(one.id, one.why) for one in done.refused] == [
        (old, f"it has moved to the database there, as job {two.new_id(old)}"),
        (4711, "it has ended, was deleted, or never was"),
    ]


async def test_a_wait_ends_when_the_chain_has_arrived(two: Two) -> None:
    (old,) = enqueue(two.here.conn, job())
    app = Holdfast(two.here.url)
    waiting = asyncio.create_task(app.wait(old, timeout=30))
    await until(lambda: two.here.value("SELECT count(*) FROM holdfast.watcher"))
    await asyncio.to_thread(two.mover().move)
    with pytest.raises(JobMoved) as caught:
        await waiting
    assert caught.value.moved_id == two.new_id(old)


async def test_the_api_answers_with_the_place(two: Two) -> None:
    (old,) = enqueue(two.here.conn, job())
    two.mover().move()
    async with await psycopg.AsyncConnection.connect(two.here.url, autocommit=True) as conn:
        service = Service(SingleConnection(conn, timedelta(seconds=10)))
        async with service.reading() as transaction:
            with pytest.raises(RequestRefused) as caught:
                await read_story(transaction, old, Redaction())
    assert (caught.value.status, caught.value.code) == (404, "moved")
    assert caught.value.message == f"Job {old} has moved to the database there, as job {two.new_id(old)}."


async def test_a_handler_there_gets_the_key_that_it_would_have_got_here(two: Two) -> None:
    app, keys = Holdfast(two.there.url), []

    @app.job("k")
    async def ask(job: Job[None]) -> None:
        keys.append(job.idempotency_key)

    (old,) = enqueue(two.here.conn, job())
    two.mover().move()
    async with app.worker(**QUICK):
        await until(lambda: keys)
    assert keys == [f"holdfast:{two.here.place().identity}:{old}"]
