from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from holdfast import Continue, DuplicateJob, Holdfast, InvalidJob, Job, Unique, UnsupportedConnection
from holdfast._drivers import run
from holdfast._drivers.asyncpg import numbered
from holdfast._store.statement import Statement
from holdfast.testing import Testing
from tests.drivers.jobs import INSERT, app, seen, send_receipt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def conn(database: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    conn: asyncpg.Connection[Any] = await asyncpg.connect(database)
    yield conn
    await conn.close()


async def test_the_job_exists_when_the_callers_transaction_commits(
    conn: asyncpg.Connection[Any], database: str
) -> None:
    async with conn.transaction():
        await conn.execute(INSERT)
        handles = await app.enqueue_many(conn, [send_receipt.new(1), send_receipt.new(2)])
        assert seen(database) == ([], 0)
    assert handles[0].id < handles[1].id
    assert seen(database) == ([1, 2], 1)


async def test_rollback_leaves_nothing(conn: asyncpg.Connection[Any], database: str) -> None:
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute(INSERT)
    await app.enqueue(conn, send_receipt.new(1))
    await transaction.rollback()
    assert seen(database) == ([], 0)


async def test_a_savepoint_takes_its_jobs_along(conn: asyncpg.Connection[Any], database: str) -> None:
    async with conn.transaction():
        await app.enqueue(conn, send_receipt.new(1))
        inner = conn.transaction()
        await inner.start()
        await app.enqueue(conn, send_receipt.new(2))
        await inner.rollback()
    assert seen(database)[0] == [1]


async def test_without_a_transaction_the_job_is_there_at_once(conn: asyncpg.Connection[Any], database: str) -> None:
    await app.enqueue(conn, send_receipt.new(1))
    assert seen(database)[0] == [1]


@pytest.mark.parametrize("options", [{}, {"statement_cache_size": 0}], ids=str)
async def test_a_connection_of_a_pool(database: str, options: dict[str, Any]) -> None:
    async with asyncpg.create_pool(database, min_size=1, max_size=2, **options) as pool:
        async with pool.acquire() as conn, conn.transaction():
            await conn.execute(INSERT)
            await app.enqueue(conn, send_receipt.new(1))
        wrong: Any = pool
        with pytest.raises(
            UnsupportedConnection, match=r"Pool is no connection: `async with pool.acquire\(\) as conn`"
        ):
            await app.enqueue(wrong, send_receipt.new(2))
    assert seen(database) == ([1], 1)


async def test_custom_records(database: str) -> None:
    class Row(asyncpg.Record):
        pass

    conn: asyncpg.Connection[Any] = await asyncpg.connect(database, record_class=Row)
    assert (await app.enqueue(conn, send_receipt.new(1))).created
    await conn.close()


async def test_a_connection_with_codecs_of_its_own_for_json(conn: asyncpg.Connection[Any]) -> None:
    for name in ("json", "jsonb"):
        await conn.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    app = Holdfast()
    posted = app.event("said", dict[str, str])

    @app.job("adds")
    async def adds(job: Job[None], number: int) -> dict[str, int] | Continue[dict[str, int]]:
        async with conn.transaction():
            if number:
                return await job.complete(conn, Continue(adds.new(number - 1)))
            return await job.complete(conn, {"sum": number})

    await app.publish(conn, posted.new({"a": "b"}, headers={"c": "d"}))
    assert await conn.fetchrow("SELECT payload, headers FROM holdfast.event") == ({"a": "b"}, {"c": "d"})

    ran = await app.enqueue(conn, adds.new(1).options(headers={"e": "f"}))
    await Testing(app, conn).drain()
    chain = await app.get_chain(conn, ran)
    assert chain is not None
    assert chain.result == {"sum": 0}

    ended, gone_on = await app.enqueue_many(conn, [adds.new(2), adds.new(3)])
    assert await app.complete_chain(conn, ended, {"sum": 4}) == "completed"
    assert await conn.fetchval("SELECT result FROM holdfast.job_history WHERE id = $1", ended.id) == {"sum": 4}
    assert await app.complete_chain(conn, gone_on, Continue(adds.new(5))) == "completed"
    assert await conn.fetchval("SELECT payload FROM holdfast.job") == {"number": 5}


async def test_what_the_database_refuses(conn: asyncpg.Connection[Any]) -> None:
    first = await app.enqueue(conn, send_receipt.new(1).options(unique=Unique("k")))
    with pytest.raises(DuplicateJob) as caught:
        await app.enqueue(conn, send_receipt.new(2).options(unique=Unique("k", on_conflict="raise")))
    assert caught.value.existing_id == first.id
    raising = "DO $$ BEGIN RAISE EXCEPTION 'priority: no' USING ERRCODE = 'HF002'; END $$"
    with pytest.raises(InvalidJob, match=r"^priority: no$"):
        await run(conn, Statement(raising, {}, len))
    with pytest.raises(asyncpg.DivisionByZeroError):
        await run(conn, Statement("SELECT 1 / %(n)s", {"n": 0}, len))


async def test_cancelling(conn: asyncpg.Connection[Any]) -> None:
    handle = await app.enqueue(conn, send_receipt.new(1))
    assert await app.cancel(conn, handle.id) == "cancelled"
    assert await app.cancel(conn, 2**40) == "not_found"


async def test_sync_verbs_are_refused(conn: asyncpg.Connection[Any]) -> None:
    wrong: Any = conn
    with pytest.raises(UnsupportedConnection, match="async connections only"):
        app.sync.enqueue(wrong, send_receipt.new(1))


async def test_placeholders_are_numbered(conn: asyncpg.Connection[Any]) -> None:
    sql = "SELECT %(b)s::text, %(a)s::int %% 4, '%%'"
    assert numbered(sql) == ("SELECT $1::text, $2::int % 4, '%'", ("b", "a"))
    assert await run(conn, Statement(sql, {"a": 7, "b": "x"}, list)) == [("x", 3, "%")]


async def test_a_name_may_be_repeated(conn: asyncpg.Connection[Any]) -> None:
    sql = "SELECT %(a)s::text IS NULL OR %(a)s::text = 'x', %(b)s::int + %(b)s::int"
    assert await run(conn, Statement(sql, {"a": None, "b": 2}, list)) == [(True, 4)]
