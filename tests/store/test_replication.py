"""Two-phase commits, and publications of all tables, beside every part of a job's and an event's life."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._store.chain import delete_chains
from holdfast._store.maintenance import delete_replays, delete_sleepers, delete_workers
from holdfast._store.tally import TallySpan, fold_tallies
from tests.kit.shop import enqueue, make_app, tick
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def logical(server_version: int) -> Iterator[Server]:
    with Server(server_version, wal_level="logical", max_prepared_transactions=5) as server:
        yield server


@pytest.fixture
def url(logical: Server) -> Iterator[str]:
    from holdfast._store.schema import migrate

    with psycopg.connect(logical.url(), autocommit=True) as conn:
        conn.execute("CREATE DATABASE replicated")
        try:
            with psycopg.connect(logical.url("replicated"), autocommit=True) as own:
                migrate(own)
            yield logical.url("replicated")
        finally:
            conn.execute("DROP DATABASE replicated WITH (FORCE)")


@pytest.fixture
def conn(url: str) -> Iterator[Connection]:
    with psycopg.connect(url, autocommit=True) as conn:
        yield conn


async def test_a_publication_of_all_tables_hinders_nothing(url: str, conn: Connection) -> None:
    conn.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    app = make_app(url)
    paid = app.topics["invoice.paid"]
    await tick(app)  # every runner once: it also makes the subscription
    async with await psycopg.AsyncConnection.connect(url) as own, own.transaction():
        await app.publish(own, paid.new({"invoice": 7}, key="7"))
    done = await enqueue(app, "mail.send", "a@example.org")
    dead = await enqueue(app, "mail.break")
    chain = await enqueue(app, "order.place")
    await tick(app)
    await tick(app)
    now = datetime.now(UTC)
    folded = run_sync(conn, fold_tallies(TallySpan(now - timedelta(hours=1), now + timedelta(hours=1))))
    assert folded >= 0
    assert run_sync(conn, delete_chains([done, dead, chain])) == sorted([done, dead, chain])
    for statement in (delete_sleepers(), delete_workers(), delete_replays()):
        run_sync(conn, statement)
    conn.execute("SELECT holdfast.publish('invoice.paid', '{\"invoice\": 8}')")
    conn.execute("SELECT holdfast.rebase_subscription(1)")
    await tick(app)


def test_every_table_from_which_rows_are_deleted_identifies_them(conn: Connection) -> None:
    """Unlogged tables are not published, and the partitions of a table say it each for themselves."""
    found = conn.execute(
        """
        SELECT c.relname FROM pg_class c
        WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r' AND c.relpersistence = 'p'
            AND (c.relreplident = 'n' OR c.relreplident = 'd'
                AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))
        """
    )
    assert found.fetchall() == []


SLEEPERS = """
    INSERT INTO holdfast.sleeper (until, worker_id, queue, kinds)
    VALUES (now() + interval '1 minute', 1, 'default', '{k}');
    INSERT INTO holdfast.reader (until, worker_id, topics) VALUES (now() + interval '1 minute', 1, '{}')
"""


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_transaction_that_does_not_notify_can_be_prepared(conn: Connection, level: str) -> None:
    conn.execute(SLEEPERS)
    conn.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
    conn.execute("SET LOCAL holdfast.notify = off")
    conn.execute("SELECT holdfast.enqueue('k'), holdfast.enqueue('k', unique_key => 'u'), holdfast.publish('t', '{}')")
    conn.execute('SELECT holdfast.enqueue_group(\'[{"kind": "k"}]\', \'{"kind": "k"}\', false)')
    conn.execute("PREPARE TRANSACTION 'both'")
    conn.execute("COMMIT PREPARED 'both'")
    assert conn.execute("SELECT count(*) FROM holdfast.job").fetchone() == (4,)
    assert conn.execute("SELECT count(*) FROM holdfast.event").fetchone() == (1,)


def test_without_the_setting_postgresql_refuses_to_prepare(conn: Connection) -> None:
    """This is what the setting is for; see the page about wake-ups."""
    conn.execute(SLEEPERS)
    conn.execute("BEGIN")
    conn.execute("SELECT holdfast.enqueue('k')")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOTIFY"):
        conn.execute("PREPARE TRANSACTION 'both'")
