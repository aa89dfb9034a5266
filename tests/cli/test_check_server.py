"""`holdfast check --server`: every feature that Holdfast needs, on servers that have it and on servers that do not."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from holdfast._cli import server_features
from holdfast._cli.server_features import _locks, _timeouts, _tried
from holdfast._cli.session import Database
from holdfast._model.settings import Settings
from holdfast._store.needs import TRIALS, Trial
from tests.kit.commands import Output, environment, holdfast
from tools import faketime
from tools.pgbouncer import PgBouncer
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


SUBJECTS = [
    "address", "version", "writing", "encoding", "schema", "roles", "functions", "tables", "partitions",
    "unlogged tables", "skip locked", "snapshots", "identifier", "advisory locks", "isolation", "connections", "listen",
    "prepared statements", "timeouts", "safety", "clock",
]  # fmt: skip
SHELL = "postgres@"


def findings(output: Output) -> dict[str, tuple[str, str]]:
    return {one["subject"]: (one["verdict"], one["message"]) for one in output.json["findings"]}


def bad(found: dict[str, tuple[str, str]]) -> set[str]:
    return {subject for subject, (verdict, _) in found.items() if verdict == "wrong"}


@contextmanager
def user(database: str, options: str = "") -> Iterator[str]:
    """Yield the address of a new user of this database."""
    name = f"test_needs_{os.getpid()}"
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE ROLE {} LOGIN {}").format(sql.Identifier(name), sql.SQL(options)))
        try:
            yield database.replace(SHELL, f"{name}@")
        finally:
            conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def objects(url: str) -> list[tuple[Any, ...]]:
    """Everything that a check could leave behind."""
    with psycopg.connect(url, autocommit=True) as conn:
        return conn.execute(
            "SELECT oid FROM pg_namespace UNION ALL SELECT oid FROM pg_class UNION ALL SELECT oid FROM pg_proc "
            "UNION ALL SELECT oid FROM pg_type ORDER BY 1"
        ).fetchall()


def test_before_there_is_a_schema(empty: str, server_version: int) -> None:
    before = objects(empty)
    output = holdfast("check", "--server", "--json", database=empty)
    assert output.status == 0, output
    found = findings(output)
    assert list(found) == SUBJECTS
    assert output.json.keys() == {"ok", "findings"}
    assert found["version"][1].startswith(f"PostgreSQL {server_version}.")
    # The servers of the tests are quick rather than durable.
    assert {subject for subject, (verdict, _) in found.items() if verdict != "ok"} == {"safety"}
    damage = "fsync, full_page_writes off: a crash of the server can damage the database"
    assert found["safety"][1] == f"autovacuum off: the tables of jobs grow unless you vacuum them; {damage}"
    assert objects(empty) == before


@pytest.mark.nightly
def test_for_people(database: str) -> None:
    output = holdfast("check", "--server", database=database)
    assert output.out.startswith("VERDICT")
    assert "HOLDFAST_BATCH_SIZE" not in output.out
    assert [line.split("  ")[0] for line in output.out.splitlines()[1:]].count("ok") == len(SUBJECTS) - 1


def test_a_user_who_may_create_nothing(empty: str, database: str) -> None:
    with user(empty) as url:
        name = f"test_needs_{os.getpid()}"
        output = holdfast("check", "--server", "--json", database=url)
        assert output.status == 1
        found = findings(output)
        assert bad(found) == {"schema"}
        assert found["schema"][1].startswith(f"{name} may not create it: GRANT CREATE ON DATABASE holdfast_")
        assert found["partitions"][0] == "note"
        assert found["partitions"][1].startswith("not tried: permission denied for database")
        migrated = findings(holdfast("check", "--server", "--json", database=database.replace(SHELL, f"{name}@")))
    assert bad(migrated) == set()
    assert migrated["schema"] == ("ok", f"is there; {name} may not create another")
    assert migrated["partitions"] == ("ok", "partitions can be attached and detached: the schema has them")


def test_a_pooler_in_transaction_mode(database: str, server: Server) -> None:
    with PgBouncer(server) as pooler:
        url = database.replace(f":{server.port}/", f":{pooler.port}/")
        found = findings(holdfast("check", "--server", "--json", database=url))
        polling = holdfast("check", "--server", "--json", database=url, HOLDFAST_LISTEN="false")
    assert found["address"] == (
        "note",
        "goes through a pooler in transaction mode: right for producers. Workers need HOLDFAST_LISTEN=false",
    )
    assert found["listen"][0] == "wrong"
    assert found["prepared statements"][0] == "note"
    assert "workers prepare none" in found["prepared statements"][1]
    assert found["connections"] == ("ok", "the pooler decides how many the server gets")
    assert bad(found) == {"listen"}
    assert polling.status == 0


@pytest.mark.nightly
def test_a_check_leaves_nothing_in_the_sessions_of_a_pooler(database: str, server: Server) -> None:
    with PgBouncer(server, pool_size=2) as pooler:
        url = database.replace(f":{server.port}/", f":{pooler.port}/")
        assert {
            findings(holdfast("check", "--server", "--json", database=url))["prepared statements"][0] for _ in "ab"
        } == {"note"}
        with psycopg.connect(url) as one, psycopg.connect(url) as other:
            for conn in (one, other):
                assert conn.execute("SELECT name FROM pg_prepared_statements").fetchall() == []
                assert conn.execute("SELECT pg_listening_channels()").fetchall() == []


@pytest.mark.nightly
def test_a_pooler_in_session_mode(database: str, server: Server) -> None:
    with PgBouncer(server, mode="session") as pooler:
        url = database.replace(f":{server.port}/", f":{pooler.port}/")
        output = holdfast("check", "--server", "--json", database=url)
    assert output.status == 0
    assert findings(output)["address"] == ("ok", "goes through a pooler in session mode")
    assert findings(output)["listen"] == ("ok", "works: idle workers are woken")
    assert findings(output)["prepared statements"] == ("ok", "the pooler keeps them")


@pytest.mark.nightly
def test_a_pooler_with_a_single_session_does_not_hang(
    database: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_features, "_PATIENCE", 0.5)
    with PgBouncer(server, pool_size=1) as pooler:
        url = database.replace(f":{server.port}/", f":{pooler.port}/")
        found = {
            subject: verdict
            for verdict, subject, _ in server_features.check(Database("", "here", url), Settings.load({}))
        }
    assert found["advisory locks"] == "wrong"
    assert found["clock"] == "ok"


@pytest.mark.nightly
def test_a_database_that_only_reads(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(sql.Identifier(conn.info.dbname))
        )
    output = holdfast("check", "--server", "--json", database=empty)
    assert output.status == 1
    found = findings(output)
    assert found["writing"] == (
        "wrong",
        "this server only reads, as a standby does: give the address of the primary",
    )
    assert found["tables"][0] == "note"


@pytest.mark.nightly
def test_another_encoding_and_a_stricter_isolation(server: Server) -> None:
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute("CREATE DATABASE test_latin ENCODING LATIN1 LOCALE 'C' TEMPLATE template0")
        try:
            conn.execute("ALTER DATABASE test_latin SET default_transaction_isolation = 'serializable'")
            output = holdfast("check", "--server", "--json", database=server.url("test_latin"))
        finally:
            conn.execute("DROP DATABASE test_latin WITH (FORCE)")
    found = findings(output)
    assert bad(found) == {"encoding", "isolation"}
    assert found["encoding"][1].startswith("the database has LATIN1: ")


@pytest.mark.nightly
def test_connections_that_do_not_fit(empty: str) -> None:
    output = holdfast("check", "--server", "--json", database=empty, HOLDFAST_MAX_CONNECTIONS="198")
    assert output.status == 1
    assert "not one process fits" in findings(output)["connections"][1]


@pytest.mark.nightly
def test_timeouts_that_are_short(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True, options="-c statement_timeout=5s -c idle_session_timeout=9h") as conn:
        verdict, _, states = _timeouts(conn)
        assert (verdict, states) == (
            "note",
            "statement_timeout is 5000 ms for postgres: maintenance of large tables is cancelled and tried again",
        )
    with psycopg.connect(empty, autocommit=True, options="-c idle_session_timeout=9h") as conn:
        assert _timeouts(conn) == ("ok", "timeouts", "idle_session_timeout 32400000 ms")


@pytest.mark.nightly
def test_a_server_that_is_durable(server_version: int) -> None:
    with Server(server_version, fsync="on", full_page_writes="on") as durable:
        assert findings(holdfast("check", "--server", "--json", database=durable.url()))["safety"][0] == "ok"
        hasty = f"{durable.url()}?options=-c%20synchronous_commit%3Doff"
        assert findings(holdfast("check", "--server", "--json", database=hasty))["safety"] == (
            "note",
            "synchronous_commit off: a crash of the server loses the last commits, your data and its jobs alike",
        )


def test_a_feature_that_the_server_lacks(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = Trial("time travel", "AS OF SYSTEM TIME", "yesterday stays as it was")
    monkeypatch.setattr(
        "holdfast._store.needs._scripts", lambda: {"local": "", "begin": "", "time_travel": "SELECT 1 AS OF 2;"}
    )
    with psycopg.connect(empty, autocommit=True) as conn:
        verdict, subject, states = _tried(conn, lacking, migrated=True)
    assert (verdict, subject) == ("wrong", "time travel")
    assert states.endswith(": yesterday stays as it was")


@pytest.mark.nightly
def test_locks_that_do_not_exclude_others(empty: str, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    """In one session, which has every lock already, as on a server where they do nothing."""
    conn = connect()
    verdict, _, states = _locks(conn, conn)
    assert verdict == "wrong"
    assert states.startswith("two transactions got the same lock")


@pytest.mark.nightly
def test_a_clock_that_differs(empty: str) -> None:
    output = subprocess.run(
        [sys.executable, "-m", "holdfast", "check", "--server", "--json"],
        env=environment(empty, **faketime.environment(-3600)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert output.returncode == 0, output
    verdict, states = findings(Output(output.returncode, output.stdout, output.stderr))["clock"]
    assert verdict == "note"
    assert states == "the server is 3600 s ahead of this machine: jobs are due by the server's clock"


def test_every_feature_has_its_script() -> None:
    assert [trial.subject for trial in TRIALS] == [
        subject for subject in SUBJECTS if subject in {t.subject for t in TRIALS}
    ]


@pytest.mark.nightly
def test_a_server_that_is_away() -> None:
    output = holdfast("check", "--server", "--json", database="postgresql://127.0.0.1:1/away")
    assert output.status == 1
    assert findings(output)["database"][1].startswith("cannot connect to the database of DATABASE_URL: ")
