"""Tokens for the endpoints, and logins for the database."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
import pytest
from psycopg import sql

from holdfast._drivers import run_sync
from holdfast._ops.caller import Token
from holdfast._store.access import make_access_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Login: TypeAlias = Callable[[str], psycopg.Connection[Any]]

PATIENT = timedelta(seconds=20)
"""For a machine that is busy with something else."""

_numbers = count(1)


def make_token(url: str, role: str, *, name: str | None = None, days: float | None = 1.0) -> str:
    """Return a new token. Without a `name`, it has one that no other has."""
    token = Token.new()
    name = name or f"{role} ann {token.key}"
    with psycopg.connect(url) as conn:
        run_sync(conn, make_access_token(token.key, name=name, role=role, digest=token.digest, days=days))
    return token.text


@pytest.fixture
def owner(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """A session of the schema's owner."""
    return conn


@pytest.fixture
def login(
    owner: psycopg.Connection[Any], connect: Callable[..., psycopg.Connection[Any]]
) -> Iterator[Callable[[str], psycopg.Connection[Any]]]:
    """Connect as a new user who is a member of the given role and of nothing else."""
    made: list[sql.Identifier] = []

    def login(role: str) -> psycopg.Connection[Any]:
        name = f"test_{role}_{next(_numbers)}"
        made.append(sql.Identifier(name))
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN IN ROLE {}").format(made[-1], sql.Identifier(role)))
        return connect(user=name)

    yield login
    for name in made:
        owner.execute(sql.SQL("DROP ROLE {}").format(name))
