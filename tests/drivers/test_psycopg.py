from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import class_row, dict_row

from holdfast import DuplicateJob, Handle, InvalidJob, SchemaMissing, SchemaOutdated, Unique, UnsupportedConnection
from holdfast._drivers import run_sync
from holdfast._store.statement import Statement
from tests.drivers.jobs import INSERT, app, seen, send_receipt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tools.postgres import Server


@pytest.fixture
async def conn(database: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(database) as conn:
        yield conn


@pytest.fixture
def sync(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database) as conn:
        yield conn


async def test_the_job_exists_when_the_callers_transaction_commits(
    conn: psycopg.AsyncConnection[Any], database: str
) -> None:
    await conn.execute(INSERT)
    handle = await app.enqueue(conn, send_receipt.new(1))
    assert handle == Handle(handle.id, handle.id, created=True)
    assert seen(database) == ([], 0)
    await conn.commit()
    assert seen(database) == ([1], 1)


async def test_a_generator_of_jobs_is_enqueued_whole(conn: psycopg.AsyncConnection[Any], database: str) -> None:
    jobs: Any = (send_receipt.new(number) for number in range(3))
    handles = await app.enqueue_many(conn, jobs)
    nothing: Any = (send_receipt.new(number) for number in range(0))
    assert await app.enqueue_many(conn, nothing) == []
    await conn.commit()
    assert (len(handles), seen(database)[0]) == (3, [0, 1, 2])


async def test_rollback_leaves_nothing(conn: psycopg.AsyncConnection[Any], database: str) -> None:
    await conn.execute(INSERT)
    await app.enqueue(conn, send_receipt.new(1))
    await conn.rollback()
    assert seen(database) == ([], 0)


async def test_a_savepoint_takes_its_jobs_along(conn: psycopg.AsyncConnection[Any], database: str) -> None:
    async with conn.transaction():
        await app.enqueue(conn, send_receipt.new(1))
        async with conn.transaction(force_rollback=True):
            await app.enqueue(conn, send_receipt.new(2))
        async with conn.transaction():
            await app.enqueue(conn, send_receipt.new(3))
    await conn.commit()
    assert seen(database)[0] == [1, 3]


async def test_an_autocommit_connection_commits_at_once(database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
        await app.enqueue_many(conn, [send_receipt.new(n) for n in range(3)])
        assert seen(database)[0] == [0, 1, 2]


class Thing:
    def __init__(self, **row: object) -> None:
        self.row = row


@pytest.mark.parametrize(
    "options",
    [
        {"row_factory": dict_row},
        {"row_factory": class_row(Thing)},
        {"cursor_factory": psycopg.AsyncRawCursor},
        {"cursor_factory": psycopg.AsyncClientCursor},
        {"prepare_threshold": None},
        {"prepare_threshold": 0},
    ],
    ids=["dict_row", "class_row", "raw cursor", "client cursor", "never prepared", "always prepared"],
)
async def test_whatever_the_connection_makes_of_rows_and_cursors(database: str, options: dict[str, Any]) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True, **options) as conn:
        handle = await app.enqueue(conn, send_receipt.new(1))
        assert isinstance(handle.id, int)
        assert seen(database)[0] == [1]


async def test_pipeline_mode(conn: psycopg.AsyncConnection[Any], database: str) -> None:
    async with conn.pipeline():
        await conn.execute(INSERT)
        first = await app.enqueue(conn, send_receipt.new(1))
        second = await app.enqueue(conn, send_receipt.new(2))
        assert first.id < second.id
    await conn.commit()
    assert seen(database) == ([1, 2], 1)


def test_sync_commit_rollback_and_savepoint(sync: psycopg.Connection[Any], database: str) -> None:
    sync.execute(INSERT)
    app.sync.enqueue(sync, send_receipt.new(1))
    sync.rollback()
    assert seen(database) == ([], 0)
    sync.execute(INSERT)
    with sync.transaction(force_rollback=True):
        app.sync.enqueue(sync, send_receipt.new(2))
    handles = app.sync.enqueue_many(sync, [send_receipt.new(3), send_receipt.new(4)])
    sync.commit()
    assert handles[0].id < handles[1].id
    assert seen(database) == ([3, 4], 1)


def test_sync_pipeline_and_dict_rows(database: str) -> None:
    with psycopg.connect(database, row_factory=dict_row) as conn, conn.pipeline():
        assert app.sync.enqueue(conn, send_receipt.new(1)).created
    assert seen(database)[0] == [1]


async def test_a_duplicate_is_kept_or_raised(conn: psycopg.AsyncConnection[Any], sync: psycopg.Connection[Any]) -> None:
    first = await app.enqueue(conn, send_receipt.new(1).options(unique=Unique("k")))
    await conn.commit()
    assert await app.enqueue(conn, send_receipt.new(2).options(unique=Unique("k"))) == Handle(
        first.id, first.id, created=False
    )
    raising = send_receipt.new(3).options(unique=Unique("k", on_conflict="raise"))
    with pytest.raises(DuplicateJob) as caught:
        await app.enqueue(conn, raising)
    assert caught.value.existing_id == first.id
    with pytest.raises(DuplicateJob) as caught:
        app.sync.enqueue(sync, raising)
    assert caught.value.existing_id == first.id


def test_what_the_database_finds_invalid_is_an_invalid_job(sync: psycopg.Connection[Any]) -> None:
    raising = "DO $$ BEGIN RAISE EXCEPTION 'priority: no' USING ERRCODE = 'HF002'; END $$"
    with pytest.raises(InvalidJob, match=r"^priority: no$"):
        run_sync(sync, Statement(raising, {}, len))


def test_other_errors_stay_the_librarys_own(sync: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        run_sync(sync, Statement("SELECT 1 / %(n)s", {"n": 0}, len))


def test_a_name_may_be_repeated(sync: psycopg.Connection[Any]) -> None:
    sql = "SELECT %(a)s::text IS NULL OR %(a)s::text = 'x', %(b)s::int + %(b)s::int"
    assert run_sync(sync, Statement(sql, {"a": None, "b": 2}, list)) == [(True, 4)]


def test_a_database_that_was_not_migrated_says_so(server: Server, sync: psycopg.Connection[Any]) -> None:
    with psycopg.connect(server.url()) as conn, pytest.raises(SchemaMissing, match="holdfast migrate"):
        app.sync.enqueue(conn, send_receipt.new(1))
    sync.execute("DROP FUNCTION holdfast.enqueue_jobs CASCADE")
    with pytest.raises(SchemaOutdated):
        app.sync.enqueue_many(sync, [send_receipt.new(1)])


async def test_a_connection_of_the_other_colour_is_refused(
    conn: psycopg.AsyncConnection[Any], sync: psycopg.Connection[Any]
) -> None:
    other: Any = sync
    with pytest.raises(UnsupportedConnection, match=r"use the same verb of \.sync"):
        await app.enqueue(other, send_receipt.new(1))
    other = conn
    with pytest.raises(UnsupportedConnection, match=r"without \.sync, and await it"):
        app.sync.enqueue(other, send_receipt.new(1))


async def test_a_cursor_is_no_connection(conn: psycopg.AsyncConnection[Any], sync: psycopg.Connection[Any]) -> None:
    other: Any = conn.cursor()
    with pytest.raises(UnsupportedConnection, match="give the connection itself"):
        await app.enqueue(other, send_receipt.new(1))
    other = sync.cursor()
    with pytest.raises(UnsupportedConnection, match="give the connection itself"):
        app.sync.enqueue(other, send_receipt.new(1))


async def test_what_is_no_connection_at_all_is_refused() -> None:
    class ConnectionPool:
        __module__ = "psycopg_pool.pool"

    for other, output in (
        (object(), "expected an open connection of psycopg 3"),
        (ConnectionPool(), "is a pool: take a connection"),
    ):
        wrong: Any = other
        with pytest.raises(UnsupportedConnection, match=output):
            await app.enqueue(wrong, send_receipt.new(1))
        with pytest.raises(UnsupportedConnection, match=output):
            app.sync.enqueue(wrong, send_receipt.new(1))
