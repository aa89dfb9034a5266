"""While the database is away, or does not let us in, the terminal says so, keeps what it knew, and recovers."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from tests.kit.databases import create_template
from tests.kit.waiting import until
from tests.kit.workers import FAILED, Worker, enqueue, job
from tests.top.watching import watching

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.postgres import Server


@pytest.mark.nightly
@pytest.mark.parametrize(
    "crash", [pytest.param(True, id="crash"), pytest.param(False, id="stop", marks=pytest.mark.prove)]
)
async def test_a_restart_of_the_database_is_survived(own_server: Server, crash: bool) -> None:
    database = own_server.url(create_template(own_server))
    with psycopg.connect(database, autocommit=True) as conn:
        enqueue(conn, job(queue="mail"))
    async with watching(database) as watched:
        assert watched.column("queue") == ["mail"]
        (own_server.crash if crash else own_server.stop)()
        await until(lambda: "the database cannot be reached" in watched.text.splitlines()[0].lower())
        assert "shown is what was known at" in watched.text
        assert watched.column("queue") == ["mail"]
        await watched.press("p")
        await until(lambda: "Pause the queue mail?" in watched.text)
        await watched.press("y")
        await until(lambda: len(watched.reported) > 0)
        assert "cannot be reached" in watched.reported[0]
        own_server.start()
        with psycopg.connect(database, autocommit=True) as conn:
            enqueue(conn, job(queue="pdf"))
        await until(lambda: sorted(watched.column("queue")) == ["mail", "pdf"], 60)
        await until(lambda: "cannot be reached" not in watched.text.splitlines()[0])
        assert watched.column("state") == ["unserved", "unserved"]


async def test_an_unresponsive_database_is_reported(
    database: str, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    conn = connect()
    enqueue(conn, job(queue="mail"))
    async with watching(database, patience=0.2) as watched:
        ours = conn.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        ).fetchone()
        assert ours is not None
        os.kill(ours[0], signal.SIGSTOP)
        try:
            await until(lambda: "the database does not answer" in watched.text)
            assert watched.column("queue") == ["mail"]
            await watched.press("2", "1", "question_mark", "escape")
        finally:
            os.kill(ours[0], signal.SIGCONT)
        watched.screen.patience = 20
        await until(lambda: watched.screen.reading.trouble is None)
        await watched.look()
        assert "the database does not answer" not in watched.text


@pytest.mark.nightly
async def test_one_connection_is_all_it_takes(database: str, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    conn = connect()
    enqueue(conn, job())
    async with watching(database) as watched:
        for key in "1234567":
            await watched.press(key)
            await watched.look()
        ours = conn.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        ).fetchone()
        assert ours == (1,)


@pytest.mark.nightly
async def test_a_question_that_takes_too_long_is_given_up(
    database: str, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    blocker = connect(autocommit=False)
    enqueue(blocker, job())
    blocker.commit()
    async with watching(database) as watched:
        blocker.execute("LOCK TABLE holdfast.queue IN ACCESS EXCLUSIVE MODE")
        await until(lambda: watched.screen.reading.trouble is not None)
        blocker.rollback()
        await until(lambda: watched.screen.reading.trouble is None)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "roles",
    [pytest.param(["holdfast_viewer"], marks=pytest.mark.prove), ["holdfast_viewer", "holdfast_worker"]],
    ids=" ".join,
)
async def test_a_viewer_sees_that_it_may_not_act(
    database: str, connect: Callable[..., psycopg.Connection[Any]], roles: list[str]
) -> None:
    conn = connect()
    worker = Worker(conn)
    enqueue(conn, job())
    worker.end(worker.claim(), FAILED)
    user = f"test_looker_{os.getpid()}"
    of = sql.SQL(", ").join(map(sql.Identifier, roles))
    conn.execute(sql.SQL("CREATE ROLE {} LOGIN IN ROLE {}").format(sql.Identifier(user), of))
    try:
        async with watching(database.replace("postgres@", f"{user}@")) as watched:
            for key in "1234567":
                await watched.press(key)
                await watched.look()
                assert watched.screen.reading.trouble is None
            assert watched.column("status") == ["failed"]
            assert "(looking only)" in watched.text
            await watched.press("r")
            await until(lambda: len(watched.reported) > 0)
            assert "may look, and not act" in watched.reported[0]
            assert "holdfast_operator" in watched.reported[0]
    finally:
        conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(user)))


@pytest.mark.nightly
async def test_a_user_without_rights_sees_the_reason(
    database: str, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    conn = connect()
    user = f"test_stranger_{os.getpid()}"
    conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(user)))
    try:
        async with watching(database.replace("postgres@", f"{user}@"), looks=False) as watched:
            await until(lambda: watched.screen.reading.trouble is not None)
            await watched.pilot.pause()
            assert watched.cells == []
            assert "may not" in watched.text
    finally:
        conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(user)))
