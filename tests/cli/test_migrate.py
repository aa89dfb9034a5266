from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._cli import main
from holdfast._distribution import version
from holdfast._store.schema import migrations, script
from tests.kit.databases import encoded
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_DATABASE_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_migrate_then_nothing_to_do(empty: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--database-url", empty]) == 0
    assert capsys.readouterr() == ("".join(f"applied {migration.name}\n" for migration in migrations()), "")
    assert main(["migrate", "--database-url", empty]) == 0
    assert capsys.readouterr() == ("The schema is up to date.\n", "")


def test_check(empty: str, database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--check", "--database-url", empty]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "holdfast migrate: This database has no Holdfast schema: run `holdfast migrate`.\n"
    with psycopg.connect(empty) as conn:
        assert conn.execute("SELECT to_regnamespace('holdfast')").fetchone() == (None,)
    assert main(["migrate", "--check", "--database-url", database]) == 0
    assert capsys.readouterr() == ("The schema is up to date.\n", "")


def test_an_encoding_without_characters_is_refused_before_anything_is_written(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    with encoded(server, "SQL_ASCII") as name:
        url = server.url(name)
        assert main(["migrate", "--database-url", url]) == 1
        assert f"the database {name} has the encoding SQL_ASCII" in capsys.readouterr().err
        with psycopg.connect(url, client_encoding="UTF8") as conn:
            assert conn.execute("SELECT to_regnamespace('holdfast')").fetchone() == (None,)


def test_a_server_with_few_locks_has_its_setting_named(capsys: pytest.CaptureFixture[str]) -> None:
    with Server(max_connections=5, max_locks_per_transaction=10, max_wal_senders=0, shared_buffers="1MB") as few:
        assert main(["migrate", "--database-url", few.url()]) == 1
        output = capsys.readouterr().err
        assert output.startswith("holdfast migrate: the database refused: out of shared memory")
        assert "max_locks_per_transaction" in output
        with psycopg.connect(few.url()) as conn:
            assert conn.execute("SELECT to_regnamespace('holdfast')").fetchone() == (None,)


def test_a_newer_schema(
    database: str, connect: Callable[..., psycopg.Connection[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    connect().execute("INSERT INTO holdfast.migration VALUES (9998, '9998_future', 'x')")
    for options in ([], ["--check"]):
        assert main(["migrate", "--database-url", database, *options]) == 0
    capsys.readouterr()
    connect().execute("INSERT INTO holdfast.migration VALUES (9999, '9999_future_breaking', 'x')")
    for options in ([], ["--check"]):
        assert main(["migrate", "--database-url", database, *options]) == 1
        assert "9999_future" in capsys.readouterr().err


def test_print_needs_no_database(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--print"]) == 0
    assert capsys.readouterr() == (script(), "")


def test_where_the_url_comes_from(
    database: str, empty: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", database)
    assert main(["migrate", "--check"]) == 0
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", empty)
    assert main(["migrate", "--check"]) == 1
    assert main(["migrate", "--check", "--database-url", database]) == 0


def test_no_url(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate"]) == 2
    message = "no database: give --database-url, or set HOLDFAST_DATABASE_URL or DATABASE_URL"
    assert capsys.readouterr().err == f"holdfast migrate: {message}\n"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hush@127.0.0.1:{port}/{db}",
        "postgresql://user@127.0.0.1:{port}/{db}?password=hush",
        "host=127.0.0.1 port={port} dbname={db} user=user password=hush",
    ],
)
def test_a_refused_connection_does_not_tell_the_password(
    server: Server, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    assert main(["migrate", "--database-url", url.format(port=server.port, db="nowhere")]) == 1
    output = capsys.readouterr().err
    assert output.startswith("holdfast migrate: cannot connect to the database of --database-url: ")
    assert "user" in output
    assert "hush" not in output


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://user:hush@127.0.0.1/db",
        "postgresql://user:p@hush@127.0.0.1/db",
        "postgresql://user:p/hush@127.0.0.1/db",
        "postgresql://user:7/hush@127.0.0.1/db",
        "postgresql://user:p%hush@127.0.0.1/db",
        "postgresql://user:hush",
        "host=127.0.0.1 password=a hush",
    ],
)
def test_a_url_that_cannot_be_read_is_not_repeated(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    assert main(["migrate"]) == 2
    output = capsys.readouterr().err
    assert re.match(r"holdfast migrate: (cannot read )?the URL of DATABASE_URL", output)
    assert "postgresql://" in output
    assert "hush" not in output


def test_a_user_without_rights_is_refused(empty: str, capsys: pytest.CaptureFixture[str]) -> None:
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute("CREATE ROLE test_stranger LOGIN")
        try:
            assert main(["migrate", "--database-url", empty.replace("postgres@", "test_stranger@")]) == 1
        finally:
            conn.execute("DROP ROLE test_stranger")
        dbname = conn.info.dbname
    output = capsys.readouterr().err
    assert output.startswith(
        f"holdfast migrate: test_stranger lacks a privilege: permission denied for database {dbname}."
    )


def test_the_roles_that_could_not_be_made_are_named(
    database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("holdfast._store.schema.missing_roles", lambda _: ["holdfast_viewer"])
    assert main(["migrate", "--database-url", database]) == 0
    assert "Without the roles holdfast_viewer: postgres may not create them" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["unheard-of"], ["migrate", "--print", "--check"]], ids=" ".join)
def test_called_wrongly(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert capsys.readouterr().err.startswith("holdfast")


def test_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "holdfast", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"holdfast {version()}\n"
