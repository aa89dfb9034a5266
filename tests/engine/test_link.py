"""One connection: what it does when the server says nothing, or goes away in the wrong moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast._engine import link as link_module
from holdfast._engine.link import Link, behind_pooler
from holdfast._store.statement import Statement
from holdfast._store.worker import identify_database
from tests.kit.pooler import pooler
from tests.kit.trouble import Line
from tests.kit.waiting import Stopwatch, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.kit.ledger import Ledger
    from tools.postgres import Server

ASLEEP = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"


WAITING = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


async def sleep(conn: psycopg.AsyncConnection[Any]) -> None:
    await conn.execute("SELECT pg_sleep(60)")


async def test_a_server_that_says_nothing_is_not_asked_for_leave_to_go(database: str) -> None:
    async with Line(database) as line, Link(line.url, timeout=3) as link:
        known = await link.run(identify_database())
        line.freeze()
        async with Stopwatch() as watch:
            with pytest.raises(psycopg.OperationalError):
                await link.run(identify_database())
        assert watch.seconds < 10
        assert link.unanswered
        line.thaw()
        assert await link.run(identify_database()) == known
        assert not link.unanswered


async def test_a_server_that_falls_silent_before_the_first_statement(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Line(database) as line, Link(line.url, timeout=3) as link:

        async def frozen(conn: psycopg.AsyncConnection[Any]) -> bool:
            line.freeze()
            return await behind_pooler(conn)

        with monkeypatch.context() as patch:
            patch.setattr(link_module, "behind_pooler", frozen)
            async with Stopwatch() as watch, asyncio.timeout(20):
                with pytest.raises(psycopg.OperationalError):
                    await link.run(identify_database())
        assert watch.seconds < 10
        line.thaw()
        assert await link.run(identify_database())


async def search_path(conn: psycopg.AsyncConnection[Any]) -> str:
    cursor = await conn.execute("SHOW search_path")
    row = await cursor.fetchone()
    assert row is not None
    return str(row[0])


async def test_names_are_pinned_in_a_session_of_our_own(database: str) -> None:
    async with Link(database, timeout=60) as link:
        assert await link.run_with(search_path) == "pg_catalog, pg_temp"


@pytest.mark.parametrize("plain", [True, False])
async def test_only_a_session_with_pinned_plans_takes_plain_statements(database: str, plain: bool) -> None:
    async with Link(database, timeout=5, plain=plain) as link:
        assert not link.takes_plain
        await link.run(identify_database())
        assert link.takes_plain is plain


async def test_the_session_of_a_pooler_stays_as_it_was(database: str, server: Server) -> None:
    path: Statement[str] = Statement("SELECT pg_catalog.current_setting('search_path')", {}, lambda rows: rows[0][0])
    plain: Statement[str] = Statement("SELECT current_setting('search_path')", {}, lambda rows: rows[0][0])
    with pooler(server.port) as port:
        async with Link(make_conninfo(database, port=port), timeout=60) as link:
            before = await link.run_with(search_path)
            assert (
                await link.run(plain) == "pg_catalog, pg_temp"
            )  # it names something, so in a transaction it is pinned
            assert await link.run(path) == before != "pg_catalog, pg_temp"
            assert await link.run_with(search_path) == before


@pytest.mark.parametrize("way", ["timeout", "hurry", "abandon"])
async def test_a_statement_that_is_given_up_is_cancelled_at_the_server(
    database: str, ledger: Ledger, connect: Callable[..., psycopg.Connection[Any]], way: str
) -> None:
    statement = Statement("INSERT INTO holdfast.locked_by_a_test VALUES (1)", {}, lambda _: None)
    with connect(autocommit=False) as holder:
        holder.execute("CREATE TABLE holdfast.locked_by_a_test (number integer)")
        holder.commit()
        holder.execute("LOCK TABLE holdfast.locked_by_a_test")
        async with Link(database, timeout=0.5 if way == "timeout" else 60) as link:
            waits = asyncio.ensure_future(link.run(statement))
            await until(lambda: ledger.rows(WAITING))
            if way == "hurry":
                link.hurry(0.3)
            elif way == "abandon":
                await link.abandon()
            with pytest.raises(psycopg.OperationalError):
                await waits
            assert not link.unanswered
            await until(lambda: not ledger.rows(WAITING))
            if way != "abandon":
                assert await link.run(identify_database())
        holder.rollback()
        assert holder.execute("SELECT count(*) FROM holdfast.locked_by_a_test").fetchone() == (0,)


async def test_hurry_ends_a_statement_that_is_under_way(database: str, ledger: Ledger) -> None:
    async with Link(database, timeout=60) as link:
        running = asyncio.create_task(link.run_with(sleep))
        await until(lambda: ledger.rows(ASLEEP))
        link.hurry(0.5)
        with pytest.raises(psycopg.OperationalError):
            await asyncio.wait_for(running, 30)
        assert await link.run(identify_database())


async def test_a_cancelled_task_stays_cancelled_when_its_connection_is_lost(database: str, ledger: Ledger) -> None:
    async with Line(database) as line, Link(line.url, timeout=60) as link:
        running = asyncio.create_task(link.run_with(sleep))
        await until(lambda: ledger.rows(ASLEEP))
        running.cancel()
        line.refuse()
        with pytest.raises(asyncio.CancelledError):
            await running
