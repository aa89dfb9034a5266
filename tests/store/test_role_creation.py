"""The roles belong to the whole server: created once when they are missing, by a user with the right to do so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from holdfast._store.schema import check, migrate, migrations, missing_roles
from tests.kit.databases import clone, drop_left
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROLES = ["holdfast_producer", "holdfast_worker", "holdfast_viewer", "holdfast_operator"]


@pytest.fixture(scope="module")
def bare_server(server_version: int) -> Iterator[Server]:
    """A server of which no database was ever migrated, so that the roles are missing."""
    with Server(server_version) as server:
        yield server


@pytest.fixture
def bare(bare_server: Server) -> Iterator[Callable[[], str]]:
    """Make databases on a server without the roles; afterwards both are gone again."""
    with ExitStack() as databases:
        yield lambda: databases.enter_context(clone(bare_server, "template0"))
    drop_left(bare_server)
    with psycopg.connect(bare_server.url(), autocommit=True) as conn:
        for role in ROLES:
            conn.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role)))


def one(conn: psycopg.Connection[Any], query: str) -> Any:
    row = conn.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def test_the_owner_of_a_database_needs_no_power_over_roles(bare: Callable[[], str]) -> None:
    url = bare()
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("CREATE ROLE landlord LOGIN")
        conn.execute(sql.SQL("ALTER DATABASE {} OWNER TO landlord").format(sql.Identifier(conn.info.dbname)))
        notices: list[str | None] = []
        with psycopg.connect(url, user="landlord", autocommit=True) as landlord:
            landlord.add_notice_handler(lambda notice: notices.append(notice.message_primary))
            assert len(migrate(landlord)) == len(migrations())
            assert missing_roles(landlord) == ROLES
            check(landlord)
            assert one(landlord, "SELECT holdfast.enqueue('mail')") == 1

            conn.execute("CREATE ROLE holdfast_producer")  # by somebody who may
            assert migrate(landlord) == []
            assert missing_roles(landlord) == ROLES[1:]
            conn.execute("SET ROLE holdfast_producer")
            assert one(conn, "SELECT holdfast.enqueue('mail')") == 2
            conn.execute("RESET ROLE")
        assert notices == []
        conn.execute("DROP OWNED BY holdfast_producer")
        conn.execute("DROP OWNED BY landlord")
        conn.execute(sql.SQL("ALTER DATABASE {} OWNER TO postgres").format(sql.Identifier(conn.info.dbname)))
        conn.execute("DROP ROLE landlord")


@pytest.mark.parametrize("first", ["commit", "rollback"])
def test_two_databases_of_one_server_at_once(bare: Callable[[], str], bare_server: Server, first: str) -> None:
    urls = [bare(), bare()]

    def apply(url: str) -> list[str]:
        with psycopg.connect(url, autocommit=True, application_name="racer") as conn:
            return migrate(conn)

    with psycopg.connect(bare_server.url()) as rival, ThreadPoolExecutor() as pool:
        rival.execute("CREATE ROLE holdfast_producer")
        racers = [pool.submit(apply, url) for url in urls]
        await_rivals(rival)
        getattr(rival, first)()
        assert [len(racer.result()) for racer in racers] == [len(migrations())] * 2
    for url in urls:
        with psycopg.connect(url, autocommit=True) as conn:
            assert missing_roles(conn) == []
            signature = "holdfast.enqueue_jobs(text, boolean, bigint)"
            granted = f"SELECT has_function_privilege('holdfast_producer', '{signature}', 'EXECUTE')"
            assert one(conn, granted) is True


def await_rivals(conn: psycopg.Connection[Any]) -> None:
    """Return when both racers wait for this connection's transaction to end."""
    conn.execute(
        """
        DO $$
        DECLARE
            deadline timestamptz := clock_timestamp() + interval '30 seconds';
        BEGIN
            LOOP
                PERFORM pg_stat_clear_snapshot();
                EXIT WHEN (SELECT count(*) FROM pg_stat_activity
                           WHERE application_name = 'racer' AND wait_event = 'transactionid') = 2;
                ASSERT clock_timestamp() < deadline, 'nobody waits';
                PERFORM pg_sleep(0.005);
            END LOOP;
        END $$
        """
    )
