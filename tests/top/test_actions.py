"""Actions on a row are confirmed, done and recorded in the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast._drivers import run_sync
from holdfast._model.schedule import Every
from holdfast._store.schedule import list_schedules, register_schedules
from holdfast._store.search import replay_job
from tests.cli.auditing import audited
from tests.kit.pace import ms
from tests.kit.waiting import until
from tests.kit.workers import COMPLETED, FAILED, Worker, enqueue, job, number, statuses
from tests.top.watching import WHO, watching

if TYPE_CHECKING:
    import psycopg

    from tests.top.watching import Watched


async def asked(watched: Watched, key: str, question: str) -> None:
    """Press a key, and wait for the question."""
    await watched.press(key)
    await until(lambda: question in watched.text)


async def test_pause_and_resume_a_queue(database: str, conn: psycopg.Connection[Any]) -> None:
    worker = Worker(conn)
    enqueue(conn, job())
    async with watching(database, "1") as watched:
        await asked(watched, "p", "Pause the queue default?")
        await watched.press("y")
        await until(lambda: watched.column("state") == ["paused"])
        assert worker.claim() == []
        await asked(watched, "p", "Resume the queue default?")
        await watched.press("y")
        await until(lambda: watched.column("state") == ["open"])
    assert len(worker.claim()) == 1
    assert audited(conn) == [(WHO.name, "queue.pause", "default", None), (WHO.name, "queue.resume", "default", None)]


@pytest.mark.nightly(daily=["n"])
@pytest.mark.parametrize("key", ["n", "escape", "enter"])
async def test_nothing_is_done_without_a_yes(database: str, conn: psycopg.Connection[Any], key: str) -> None:
    enqueue(conn, job())
    async with watching(database, "1") as watched:
        await asked(watched, "p", "Pause the queue default?")
        await watched.press(key)
        await until(lambda: len(watched.top.screen_stack) == 1)
        await watched.look()
    assert number(conn, "SELECT count(*) FROM holdfast.queue") == 0
    assert audited(conn) == []


@pytest.mark.nightly
async def test_the_button_says_yes_too(database: str, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, job())
    async with watching(database, "1") as watched:
        await asked(watched, "p", "Pause the queue default?")
        await watched.pilot.click("#yes")
        await until(lambda: watched.column("state") == ["paused"])


async def test_retry_a_dead_letter(database: str, conn: psycopg.Connection[Any]) -> None:
    worker = Worker(conn)
    (dead,) = enqueue(conn, job())
    worker.end(worker.claim(), FAILED)
    async with watching(database, "7") as watched:
        await asked(watched, "r", f"Retry job {dead}, k?")
        await watched.press("y")
        await until(lambda: watched.column("status") == ["pending", "failed"])
        assert watched.reported == ["1 job retried"]
    assert number(conn, "SELECT replay_of FROM holdfast.job") == dead
    assert audited(conn) == [(WHO.name, "jobs.retry", str(dead), 1)]


@pytest.mark.nightly
async def test_what_cannot_be_retried_is_not_even_asked_for(database: str, conn: psycopg.Connection[Any]) -> None:
    worker = Worker(conn)
    (done,) = enqueue(conn, job())
    worker.end(worker.claim(), COMPLETED)
    async with watching(database, "7") as watched:
        await watched.press("r")
        await until(lambda: len(watched.reported) == 1)
        await watched.press("c")
        await until(lambda: len(watched.reported) == 2)
        assert watched.reported == [
            f"retry is for jobs that are failed: {done} is completed",
            f"cancel is for jobs that are pending or blocked or processing: {done} is completed",
        ]
        assert len(watched.top.screen_stack) == 1
    assert audited(conn) == []


@pytest.mark.nightly
async def test_cancel_a_job(database: str, conn: psycopg.Connection[Any]) -> None:
    (waiting,) = enqueue(conn, job())
    async with watching(database, "7") as watched:
        await asked(watched, "c", f"Cancel job {waiting}, k?")
        await watched.press("y")
        await until(lambda: watched.column("status") == ["cancelled"])
    assert statuses(conn) == {waiting: "cancelled"}
    assert audited(conn) == [(WHO.name, "jobs.cancel", str(waiting), 1)]


@pytest.mark.nightly
async def test_retry_a_group_of_dead_letters(database: str, conn: psycopg.Connection[Any]) -> None:
    worker = Worker(conn, "k", "other")
    enqueue(conn, *(job() for _ in range(3)), job("other"))
    worker.end(worker.claim(), FAILED)
    async with watching(database, "6") as watched:
        assert watched.column("jobs") == ["3", "1"]
        await asked(watched, "r", "Retry 3 dead letters of k that failed with Broken?")
        await watched.press("y")
        await until(lambda: watched.column("kind") == ["other"] and watched.reported == ["3 jobs retried"])
    assert number(conn, "SELECT count(*) FROM holdfast.job WHERE kind = 'k' AND replay_of IS NOT NULL") == 3
    assert audited(conn) == [(WHO.name, "jobs.retry", None, 3)]


@pytest.mark.nightly
async def test_jobs_retried_meanwhile_are_not_retried_again(database: str, conn: psycopg.Connection[Any]) -> None:
    worker = Worker(conn)
    (dead,) = enqueue(conn, job())
    worker.end(worker.claim(), FAILED)
    async with watching(database, "6", looks=False, interval=600) as watched:
        await until(lambda: watched.column("jobs") == ["1"])
        run_sync(conn, replay_job(dead))
        await watched.press("r")
        await until(lambda: watched.reported)
        assert watched.reported == ["retry of k that failed with Broken: there is none any more"]
    assert number(conn, "SELECT count(*) FROM holdfast.job") == 1
    assert audited(conn) == []


@pytest.mark.nightly
async def test_run_and_pause_a_runner(database: str, conn: psycopg.Connection[Any]) -> None:
    run_sync(conn, register_schedules([("sweep", Every(ms(3_600_000)), None)]))
    async with watching(database, "4") as watched:
        await asked(watched, "p", "Pause sweep?")
        await watched.press("y")
        await until(lambda: watched.column("state") == ["paused"])
        await asked(watched, "r", "Run sweep now?")
        await watched.press("y")
        await until(lambda: watched.column("state") == ["triggered"])
    (schedule,) = run_sync(conn, list_schedules())
    assert (schedule.paused, schedule.triggered) == (True, True)
    assert audited(conn) == [(WHO.name, "runner.pause", "sweep", None), (WHO.name, "runner.run", "sweep", None)]


@pytest.mark.nightly
async def test_only_what_can_be_done_is_offered(database: str, conn: psycopg.Connection[Any]) -> None:
    enqueue(conn, job())
    offers = {"1": {"p"}, "2": set(), "3": set(), "4": {"r", "p"}, "5": {"p"}, "6": {"r"}, "7": {"r", "c"}}
    async with watching(database) as watched:
        for key, expected in offers.items():
            await watched.press(key)
            await watched.pilot.pause()
            assert {"r", "c", "p"} & set(watched.top.screen.active_bindings) == expected
        await watched.press("2", "r", "c", "p")
        assert len(watched.top.screen_stack) == 1
