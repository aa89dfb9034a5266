"""Databases on a test server: one migrated template, and clones of it that live as long as a test."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, date, datetime
from itertools import count
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.postgres import Server

TEMPLATE = "holdfast_template"

_numbers = count(1)


# When each server's template was made: it has the partitions of that day.
_days: dict[Server, date] = {}


def create_template(server: Server) -> str:
    """Migrate a new database once; nobody may be connected to it while it is cloned."""
    from holdfast.store.schema import migrate

    _days[server] = datetime.now(UTC).date()
    _administer(server, sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
    with psycopg.connect(server.url(TEMPLATE), autocommit=True) as conn:
        migrate(conn)
    return TEMPLATE


@contextmanager
def clone(server: Server, template: str) -> Iterator[str]:
    """Yield the address of a fresh copy of the template; drop it afterwards, whoever is still connected."""
    if template == TEMPLATE and _days[server] != datetime.now(UTC).date():
        _administer(server, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(template)))
        create_template(server)
    dbname = f"holdfast_{next(_numbers)}"
    name = sql.Identifier(dbname)
    _administer(server, sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, sql.Identifier(template)))
    try:
        yield server.url(dbname)
    finally:
        _administer(server, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def _administer(server: Server, statement: sql.Composed) -> None:
    with psycopg.connect(server.url(), autocommit=True) as conn:
        conn.execute(statement)
