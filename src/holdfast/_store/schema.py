"""The schema of the database: lists and applies migrations, and checks that this code can use the schema.

The first migration is all of `sql/schema`, a file per subject. Later ones are files in `sql/migrations`.
"""

from __future__ import annotations

import random
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast._model.errors import HoldfastError, SchemaMissing, SchemaOutdated, SchemaUnknown, UnsupportedConnection
from holdfast._store.script import split
from holdfast._store.statement import PINNED_PATH, Statement, one, statement, statements

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.resources.abc import Traversable


# number, name and checksum of a migration in the database
Applied: TypeAlias = tuple[int, str, str]

_FILE_NAME = re.compile(r"(\d{4})_[a-z_]+\.sql")
_FIRST = "0001_schema.sql"
# A migration whose name ends so removes something that older code needs. All others keep older code working.
_BREAKING = "_breaking"
# A migration that cannot get its locks is retried for this many seconds, with a pause before each attempt.
PATIENCE = 60.0
_PAUSE = (0.2, 1.0)
SQL_ASCII = "has the encoding SQL_ASCII, in which texts are bytes of no known encoding: create one with UTF8"


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str
    checksum: str


@cache
def migrations() -> tuple[Migration, ...]:
    """Return all migrations of the schema, in the order in which they are applied."""
    subjects = [file.read_text("utf-8") for file in _files("schema")]
    later = [(file.name, file.read_text("utf-8")) for file in _files("migrations")]
    return numbered([(_FIRST, "\n".join(subjects)), *later])


def _files(folder: str) -> list[Traversable]:
    found = files("holdfast._store").joinpath("sql", folder)
    return sorted(
        (file for file in found.iterdir() if file.name.endswith(".sql")) if found.is_dir() else (),
        key=lambda file: file.name,
    )


def numbered(texts: Sequence[tuple[str, str]]) -> tuple[Migration, ...]:
    """Return migrations from file names and texts; their numbers must be 1, 2, 3 and so on, without a gap."""
    made = []
    for number, (file_name, text) in enumerate(texts, start=1):
        match = _FILE_NAME.fullmatch(file_name)
        if match is None or int(match[1]) != number:
            raise HoldfastError(f"{file_name} is not the name of migration {number}: {number:04}_noun.sql")
        made.append(Migration(number, file_name.removesuffix(".sql"), text, sha256(text.encode()).hexdigest()))
    return tuple(made)


def migrate(conn: psycopg.Connection[Any]) -> list[str]:
    """Create or update the Holdfast schema; return the names of the migrations applied.

    Each migration runs in its own transaction; the grants are set last. `conn` must not be in a transaction. Any number
    of processes may call it at once, even while workers run.
    """
    given: Any = conn
    if not isinstance(given, psycopg.Connection):
        given = type(conn).__name__
        raise UnsupportedConnection(f"migrate: expected a psycopg.Connection, got {given}: give psycopg.connect(url)")
    if conn.info.transaction_status != TransactionStatus.IDLE:
        raise UnsupportedConnection("migrate makes its own transactions: give it a connection that is not in one")
    if encoding(conn) == "SQL_ASCII":
        raise UnsupportedConnection(f"migrate: the database {conn.info.dbname} {SQL_ASCII}")
    names = []
    while (migration := _take_step_through(conn)) is not None:
        names.append(migration.name)
    return names


def encoding(conn: psycopg.Connection[Any]) -> str | None:
    """Return the encoding of the database. None: whatever answers for the server does not report it."""
    return conn.info.parameter_status("server_encoding")


def script() -> str:
    """Return a psql script that creates the schema in an empty database."""
    steps = [_applying(migration) for migration in migrations()] + [_text("roles.sql")]
    transactions = [f"BEGIN;\n{_beginning()}\n{step}\nCOMMIT;\n" for step in steps]
    return "\n".join(["-- For psql and a database without Holdfast.\n\\set ON_ERROR_STOP on\n", *transactions])


def check(conn: psycopg.Connection[Any]) -> None:
    """Raise SchemaMissing, SchemaOutdated or SchemaUnknown unless this code can work with the schema."""
    with _missing_schema_reported(), conn.transaction(), psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        cursor.execute(statements()["applied_migrations"].encode(), prepare=False)
        verify(cursor.fetchall())


async def check_async(conn: psycopg.AsyncConnection[Any]) -> None:
    """Check the schema on an asynchronous connection. See `check`."""
    with _missing_schema_reported():
        async with conn.transaction(), psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
            await cursor.execute(statements()["applied_migrations"].encode(), prepare=False)
            verify(await cursor.fetchall())


def verify(applied: Sequence[Applied]) -> None:
    """Raise unless all migrations of this code are applied, and no later one that breaks it."""
    missing = missing_from(applied)
    if not applied:
        raise SchemaMissing
    if missing:
        names = ", ".join(migration.name for migration in missing)
        raise SchemaOutdated(f"The Holdfast schema of this database lacks {names}: run `holdfast migrate`.")


def missing_from(applied: Sequence[Applied]) -> tuple[Migration, ...]:
    """Return the migrations still to be applied; raises SchemaUnknown if the applied ones do not fit this code.

    Migrations of a newer version fit unless one is marked as breaking: in a rolling deployment the old code keeps
    running, and may have to restart.
    """
    known = migrations()
    for name in (name for _, name, _ in applied[len(known) :] if name.endswith(_BREAKING)):
        raise SchemaUnknown(
            f"The Holdfast schema of this database has {name}, which breaks this code: "
            "it was migrated by a newer version, so run that version here too."
        )
    for place, (number, name, checksum) in enumerate(applied[: len(known)]):
        if (number, checksum) != (known[place].number, known[place].checksum):
            raise SchemaUnknown(
                f"The Holdfast schema of this database has another {name} than this code, whose migration "
                f"{known[place].number} is {known[place].name} with checksum {known[place].checksum[:12]}: "
                "run the version of Holdfast that migrated it."
            )
    return known[len(applied) :]


def missing_roles(conn: psycopg.Connection[Any]) -> list[str]:
    """Return the roles that migrate was not permitted to create."""
    with conn.transaction(), psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        cursor.execute(_begin_pinned(), prepare=False)
        return [role for (role,) in cursor.execute(statements()["missing_roles"].encode(), prepare=False)]


def _take_step_through(conn: psycopg.Connection[Any]) -> Migration | None:
    """Take the next step; retry it while workers and long transactions keep its locks.

    A worker may lock the same tables in another order: then the server ends one of the two as a deadlock.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return _take_step(conn)
        except (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
            if time.monotonic() > until:
                raise
        time.sleep(random.uniform(*_PAUSE))  # noqa: S311 - it spreads load, and is not used for security


def _take_step(conn: psycopg.Connection[Any]) -> Migration | None:
    """Apply the next migration or, if there is none, the grants. Applied migrations are read again under the lock."""
    with conn.transaction(), psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        _run(cursor, _text("migrate", "begin.sql"))
        _run(cursor, _text("migrate", "local.sql"))
        _refuse_remnant(cursor)
        _run(cursor, _text("migrate", "found.sql"))
        applied = cursor.execute(statements()["applied_migrations"].encode(), prepare=False).fetchall()
        missing = missing_from(applied)
        if len(applied) > len(migrations()):
            return None  # only the newer version sets the grants
        _run(cursor, _applying(missing[0]) if missing else _text("roles.sql"))
        return missing[0] if missing else None


def _refuse_remnant(cursor: psycopg.Cursor[Any]) -> None:
    row = cursor.execute(statements()["is_remnant"].encode(), prepare=False).fetchone()
    if row is not None and row[0]:
        raise SchemaUnknown(
            "The schema holdfast of this database has functions or types and no table of ours: it is a copy without "
            "tables, or it belongs to something else. If nothing uses it, DROP SCHEMA holdfast CASCADE, then run "
            "`holdfast migrate` again."
        )


def _run(cursor: psycopg.Cursor[Any], script: str) -> None:
    """Run a script one statement at a time.

    Citus refuses several at once where it distributes a schema. `binary` chooses the extended protocol, in which the
    server refuses a text that was not split.
    """
    for sql in split(script):
        cursor.execute(sql.encode(), prepare=False, binary=True)


def _begin_pinned() -> bytes:
    return f"SET LOCAL search_path = {PINNED_PATH}".encode()


def _beginning() -> str:
    return "\n".join(_text("migrate", name) for name in ("begin.sql", "local.sql", "found.sql"))


def _applying(migration: Migration) -> str:
    record = _text("migrate", "record.sql")
    return (
        f"{migration.sql}\n{record.format(number=migration.number, name=migration.name, checksum=migration.checksum)}"
    )


def _text(*path: str) -> str:
    return files("holdfast._store").joinpath("sql", *path).read_text("utf-8")


@contextmanager
def _missing_schema_reported() -> Iterator[None]:
    try:
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
        raise SchemaMissing from error


class Readiness(NamedTuple):
    live: int
    """Workers with a heartbeat within the last minute."""
    silent: int
    """Workers with a heartbeat within the last hour that did not stop cleanly."""
    reaped: float | None
    """Seconds since a live worker last reaped; None: none has."""
    started: float | None
    """Seconds since the first of the live workers started."""
    unmaintained: float | None
    """Seconds since the runner `maintenance` was due; negative: not due yet; None: it never ran."""


def read_readiness() -> Statement[Readiness]:
    return statement("read_readiness", one(Readiness))


def applied_migrations() -> Statement[list[Applied]]:
    return statement("applied_migrations", lambda rows: [(row[0], row[1], row[2]) for row in rows])


def check_schema() -> Statement[None]:
    """Check the schema with one statement. See `check`."""
    return statement("applied_migrations", lambda rows: verify([(row[0], row[1], row[2]) for row in rows]))
