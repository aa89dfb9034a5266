"""Databases on a test server: one migrated template, and clones of it that live as long as a test."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from itertools import count
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.postgres import Server

TEMPLATE = "holdfast_template"

_numbers = count(1)


# When each server's template was made: it has the partitions of that day.
_days: dict[Server, date] = {}
# What tests have left. Dropping a database waits a tenth of a second if somebody is just leaving it: later, nobody is.
_left: defaultdict[Server, list[str]] = defaultdict(list)
_administrators: dict[Server, psycopg.Connection[Any]] = {}


@contextmanager
def administered(server: Server) -> Iterator[None]:
    """Keep a connection for all databases that are made in the block: a new one for each takes several milliseconds."""
    with psycopg.connect(server.url(), autocommit=True) as conn:
        _administrators[server] = conn
        try:
            yield
        finally:
            del _administrators[server]


def create_template(server: Server) -> str:
    """Migrate a new database once; no session may be connected to it while it is cloned."""
    from holdfast._store.schema import migrate

    _days[server] = datetime.now(UTC).date()
    _administer(server, sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
    with psycopg.connect(server.url(TEMPLATE), autocommit=True) as conn:
        migrate(conn)
        # Dead rows of the migration would be copied for every test.
        conn.execute("VACUUM FULL pg_proc, pg_attribute, pg_class, pg_constraint, pg_depend, pg_index, pg_type")
    # The first connection stores what every other one reads, for the clones too.
    psycopg.connect(server.url(TEMPLATE)).close()
    return TEMPLATE


@contextmanager
def clone(server: Server, template: str) -> Iterator[str]:
    """Yield the address of a fresh copy of the template; the next one drops it, even with open connections."""
    if template == TEMPLATE and _days[server] != datetime.now(UTC).date():
        _administer(server, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(template)))
        create_template(server)
    name = f"holdfast_{next(_numbers)}"
    # Copied as files: through the log it takes twice as long, and dropping it three times.
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
    _administer(server, create.format(sql.Identifier(name), sql.Identifier(template)), *_drop_left(server))
    try:
        yield server.url(name)
    finally:
        _left[server].append(name)


@contextmanager
def encoded(server: Server, encoding: str) -> Iterator[str]:
    """Yield the name of an empty database with this encoding; it is dropped at the end."""
    name = f"holdfast_{next(_numbers)}_{encoding.lower()}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING {} LOCALE 'C'")
    _administer(server, create.format(sql.Identifier(name), sql.Literal(encoding)))
    try:
        yield name
    finally:
        _administer(server, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def drop_left(server: Server) -> None:
    """Drop the databases of the tests before."""
    _administer(server, *_drop_left(server))


def _drop_left(server: Server) -> list[sql.Composed]:
    return [sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)) for name in _left.pop(server, [])]


def _administer(server: Server, *statements: sql.Composed) -> None:
    with ExitStack() as ends:
        conn = _administrators.get(server) or ends.enter_context(psycopg.connect(server.url(), autocommit=True))
        for statement in statements:
            conn.execute(statement)
