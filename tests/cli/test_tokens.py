from __future__ import annotations

import hashlib
import os
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import sql

from holdfast._ops.caller import Token
from tests.cli.auditing import ME, audited
from tests.kit.commands import holdfast

if TYPE_CHECKING:
    import psycopg


def make(database: str, *arguments: str) -> Token:
    output = holdfast("tokens", "make", *arguments, database=database)
    assert output.status == 0, output.err
    token = Token.read(output.out.removesuffix("\n"))
    assert token is not None
    return token


def test_a_token_is_shown_once_and_only_its_digest_is_kept(database: str, conn: psycopg.Connection[Any]) -> None:
    output = holdfast("tokens", "make", "Ann of shipping", "--role", "operator", database=database)
    assert output.status == 0
    token = Token.read(output.out.removesuffix("\n"))
    assert token is not None, "nothing but the token on standard output, for a script to take"
    assert "Ann of shipping is operator with it, until" in output.err
    assert token.secret not in output.err
    (row,) = conn.execute("SELECT key, name, role, digest FROM holdfast.access_token").fetchall()
    assert row == (token.key, "Ann of shipping", "operator", hashlib.sha256(token.secret.encode()).hexdigest())
    whole = conn.execute("SELECT t::text || a::text || a.detail::text FROM holdfast.access_token t, holdfast.audit a")
    assert token.secret not in str(whole.fetchall())
    assert token.secret not in holdfast("tokens", "list", "--json", database=database).out


@pytest.mark.parametrize(
    ("arguments", "days"),
    [([], 90.0), (["--expires", "30m"], 1 / 48), (["--expires", "8w"], 56.0), (["--no-expiry"], None)],
)
def test_how_long_it_is_of_use(
    database: str, conn: psycopg.Connection[Any], arguments: list[str], days: float | None
) -> None:
    made = holdfast("tokens", "make", "a", "--role", "viewer", "--json", *arguments, database=database).json
    (row,) = conn.execute("SELECT expires_at - created_at, expires_at FROM holdfast.access_token").fetchall()
    lasts, until = row
    if days is None:
        assert (lasts, made["expires_at"]) == (None, None)
    else:
        assert abs(lasts - timedelta(days=days)) < timedelta(minutes=1)
        assert datetime.fromisoformat(made["expires_at"]) == until
    assert Token.read(made["token"]) is not None


def test_list_and_revoke(database: str, conn: psycopg.Connection[Any]) -> None:
    assert holdfast("tokens", "list", database=database).out.startswith("No token has been made")
    old, kept, gone = (make(database, name, "--role", "viewer") for name in ("old", "kept", "gone"))
    conn.execute("UPDATE holdfast.access_token SET expires_at = created_at WHERE key = %s", [old.key])
    assert holdfast("tokens", "revoke", gone.key, database=database) == (0, f"{gone.key}: revoked\n", "")
    output = holdfast("tokens", "list", database=database)
    head, *lines = output.out.splitlines()
    assert head.split() == ["KEY", "NAME", "ROLE", "STATE", "CREATED", "EXPIRES"]
    assert [line.split()[:4] for line in lines] == [
        [gone.key, "gone", "viewer", "revoked"],
        [kept.key, "kept", "viewer", "valid"],
        [old.key, "old", "viewer", "expired"],
    ]
    listed = holdfast("tokens", "list", "--json", database=database).json
    assert {"digest", "secret", "token"}.isdisjoint(listed[0])


def test_what_was_done_is_in_the_audit_table(database: str, conn: psycopg.Connection[Any]) -> None:
    token = make(database, "a", "--role", "developer")
    assert holdfast("tokens", "revoke", token.text, database=database).status == 0, "the whole token names its key"
    assert audited(conn) == [(ME, "token.make", token.key, None), (ME, "token.revoke", token.key, None)]
    output = holdfast("tokens", "revoke", token.key, database=database)
    assert output == (
        1,
        "",
        f"holdfast tokens: no token with the key {token.key} is of use: see `holdfast tokens list`\n",
    )
    assert len(audited(conn)) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["make"],
        ["make", "a"],
        ["make", "a", "--role", "root"],
        ["make", "", "--role", "viewer"],
        ["make", "a\nb", "--role", "viewer"],
        ["make", "a" * 201, "--role", "viewer"],
        ["make", "a", "--role", "viewer", "--expires", "soon"],
        ["make", "a", "--role", "viewer", "--expires", "0d"],
        ["make", "a", "--role", "viewer", "--expires", "9999d"],
        ["make", "a", "--role", "viewer", "--expires", "1d", "--no-expiry"],
        ["revoke"],
        ["revoke", "xyz"],
        ["revoke", "' OR true --"],
    ],
    ids=" ".join,
)
def test_called_wrongly(database: str, conn: psycopg.Connection[Any], arguments: list[str]) -> None:
    output = holdfast("tokens", *arguments, database=database)
    assert output.status == 2
    assert output.err.startswith("holdfast tokens")
    assert output.err.count("\n") == 1
    assert conn.execute("SELECT count(*) FROM holdfast.access_token").fetchone() == (0,)


def test_a_viewer_role_reads_no_tokens(database: str, conn: psycopg.Connection[Any]) -> None:
    make(database, "a", "--role", "viewer")
    user = f"test_looker_{os.getpid()}"
    conn.execute(sql.SQL("CREATE ROLE {} LOGIN IN ROLE holdfast_viewer").format(sql.Identifier(user)))
    try:
        output = holdfast("tokens", "list", database=database.replace("postgres@", f"{user}@"))
        made = holdfast(
            "tokens", "make", "b", "--role", "developer", database=database.replace("postgres@", f"{user}@")
        )
    finally:
        conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(user)))
    for refused in (output, made):
        assert (refused.status, refused.out) == (1, "")
        assert f"{user} may not: permission denied for table access_token" in refused.err
