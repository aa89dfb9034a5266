"""A worker whose database will never let it in ends; one whose database is away waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from holdfast._engine.server_refusal import refusal
from holdfast._engine.supervisor import REFUSED_STATUS
from tests.kit.commands import holdfast
from tests.kit.databases import clone
from tools.postgres import Server

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("arguments", [(), ("--processes", "2")], ids=["one process", "supervised"])
def test_a_database_that_does_not_exist(server: Server, shop: Path, arguments: tuple[str, ...]) -> None:
    output = holdfast("worker", "shop:app", *arguments, database=server.url("nowhere"), cwd=shop)
    assert output.status == REFUSED_STATUS
    assert 'holdfast worker: nowhere: database "nowhere" does not exist. Correct the address' in output.err
    assert "Traceback" not in output.err


def test_a_role_that_does_not_exist(database: str, shop: Path) -> None:
    output = holdfast("worker", "shop:app", database=f"{database}?user=nobody", cwd=shop)
    assert (output.status, 'role "nobody" does not exist' in output.err) == (REFUSED_STATUS, True)
    assert output.err.count("\n") == 1


def test_a_password_that_is_wrong(server_version: int, shop: Path) -> None:
    """A real answer of a server that asks one role for its password."""
    with Server(server_version) as guarded:
        with psycopg.connect(guarded.url(), autocommit=True) as conn:
            conn.execute("CREATE ROLE app LOGIN PASSWORD 'right'")
        guarded.stop()
        rules = guarded.data / "pg_hba.conf"
        rules.write_text(f"host all app 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        guarded.start()
        wrong, right = [
            holdfast("worker", "shop:app", database=guarded.url().replace("postgres@", f"app:{word}@"), cwd=shop)
            for word in ("wr0ng", "right")
        ]
    refused = 'holdfast worker: postgres: password authentication failed for user "app". Correct the address'
    assert (wrong.status, wrong.err.startswith(refused)) == (REFUSED_STATUS, True)
    assert "wr0ng" not in wrong.err
    assert REFUSED_STATUS == 5
    assert "no Holdfast schema" in right.err, "the right one is let in"


def test_a_schema_that_is_missing(server: Server, shop: Path) -> None:
    with clone(server, "template0") as empty:
        output = holdfast("worker", "shop:app", database=empty, cwd=shop)
    assert (output.status, output.err.splitlines()[-1]) == (
        REFUSED_STATUS,
        "holdfast worker: This database has no Holdfast schema: run `holdfast migrate`.",
    )


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (
            'connection to server at "::1", port 5432 failed: FATAL:  password authentication failed for user "app"',
            'password authentication failed for user "app"',
        ),
        ('connection failed: FATAL:  role "app" is not permitted to log in', 'role "app" is not permitted to log in'),
        ("connection failed: FATAL:  the database system is starting up", None),
        ("connection failed: FATAL:  sorry, too many clients already", None),
        ('connection to server at "127.0.0.1", port 1 failed: Connection refused', None),
        ("consuming input failed: server closed the connection unexpectedly", None),
    ],
)
def test_temporary_problems_are_distinguished(output: str, why: str | None) -> None:
    assert refusal(psycopg.OperationalError(output)) == why


def test_a_database_without_room_is_one_that_passes(server: Server, database: str) -> None:
    """A real answer of a real server."""
    name = sql.Identifier(database.rpartition("/")[2])
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
        try:
            conn.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO crowded").format(name))
            with pytest.raises(psycopg.OperationalError) as refused:
                psycopg.connect(f"{database}?user=crowded")
        finally:
            conn.execute(sql.SQL("REVOKE CONNECT ON DATABASE {} FROM crowded").format(name))
            conn.execute("DROP ROLE crowded")
    assert refusal(refused.value) is None
