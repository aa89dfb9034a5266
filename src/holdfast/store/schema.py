"""The schema of the database: which migrations there are, applying them, and refusing what this code does not know."""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.errors import HoldfastError, SchemaMissing, SchemaOutdated, SchemaUnknown, UnsupportedConnection
from holdfast.store.statement import PINNED_PATH, statements

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# number, name and checksum of a migration, as the database has them
Applied: TypeAlias = tuple[int, str, str]

_FILE_NAME = re.compile(r"(\d{4})_[a-z_]+\.sql")
# A migration whose name ends so takes away what the code before it needs. Every other one leaves that code working.
_BREAKING = "_breaking"
# So often a migration is begun again because the server broke a deadlock between it and a worker at its expense.
_DEADLOCKS = 4


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str
    checksum: str


@cache
def migrations() -> tuple[Migration, ...]:
    """Return what makes up the schema, in the order in which it is applied."""
    found = sorted(
        (
            file
            for file in files("holdfast.store").joinpath("sql", "migrations").iterdir()
            if file.name.endswith(".sql")
        ),
        key=lambda file: file.name,
    )
    return numbered([(file.name, file.read_text("utf-8")) for file in found])


def numbered(texts: Sequence[tuple[str, str]]) -> tuple[Migration, ...]:
    """Make migrations of file names and texts; the numbers are 1, 2, 3 and so on, without a hole."""
    made = []
    for number, (file_name, text) in enumerate(texts, start=1):
        match = _FILE_NAME.fullmatch(file_name)
        if match is None or int(match[1]) != number:
            raise HoldfastError(f"{file_name} is not the name of migration {number}: {number:04}_noun.sql")
        made.append(Migration(number, file_name.removesuffix(".sql"), text, sha256(text.encode()).hexdigest()))
    return tuple(made)


def migrate(conn: psycopg.Connection[Any]) -> list[str]:
    """Apply what is missing, each migration in a transaction of its own, then set the grants; return the names applied.

    Any number of processes may do this at once, also while workers work.
    """
    if conn.info.transaction_status != TransactionStatus.IDLE:
        raise UnsupportedConnection("migrate makes its own transactions: give it a connection that is not in one")
    names = []
    while (migration := _take_step_through(conn)) is not None:
        names.append(migration.name)
    return names


def script() -> str:
    """Return what migrate does to an empty database, for psql."""
    steps = [_applying(migration) for migration in migrations()] + [_text("roles.sql")]
    transactions = [f"BEGIN;\n{_beginning()}\n{step}\nCOMMIT;\n" for step in steps]
    return "\n".join(["-- For psql and a database without Holdfast.\n\\set ON_ERROR_STOP on\n", *transactions])


def check(conn: psycopg.Connection[Any]) -> None:
    """Raise SchemaMissing, SchemaOutdated or SchemaUnknown unless this code can work with the schema."""
    with _missing_told(), conn.transaction(), psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        cursor.execute(statements()["applied_migrations"].encode(), prepare=False)
        verify(cursor.fetchall())


async def check_async(conn: psycopg.AsyncConnection[Any]) -> None:
    """Do as `check` does."""
    with _missing_told():
        async with conn.transaction(), psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
            await cursor.execute(statements()["applied_migrations"].encode(), prepare=False)
            verify(await cursor.fetchall())


def verify(applied: Sequence[Applied]) -> None:
    """Raise unless the migrations that this code knows are applied, and none after them that breaks it."""
    missing = missing_from(applied)
    if not applied:
        raise SchemaMissing
    if missing:
        names = ", ".join(migration.name for migration in missing)
        raise SchemaOutdated(f"The Holdfast schema of this database lacks {names}: run `holdfast migrate`.")


def missing_from(applied: Sequence[Applied]) -> tuple[Migration, ...]:
    """Return what is still to be applied; raise SchemaUnknown if what is applied is not for this code.

    Migrations of a newer version are, unless one of them says that it breaks what was before: in a rolling deployment
    the old code goes on, and may have to start again.
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
    """Take the next step, again if it met a worker that wants the same tables in another order."""
    for _ in range(_DEADLOCKS):
        with suppress(psycopg.errors.DeadlockDetected):
            return _take_step(conn)
    return _take_step(conn)


def _take_step(conn: psycopg.Connection[Any]) -> Migration | None:
    """Apply the next migration, or, when there is none, the grants. What is applied is read anew under the lock."""
    with conn.transaction(), psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        cursor.execute(_beginning().encode(), prepare=False)
        applied = cursor.execute(statements()["applied_migrations"].encode(), prepare=False).fetchall()
        missing = missing_from(applied)
        if len(applied) > len(migrations()):
            return None  # the grants are the newer version's to set
        step = _applying(missing[0]) if missing else _text("roles.sql")
        cursor.execute(step.encode(), prepare=False)
        return missing[0] if missing else None


def _begin_pinned() -> bytes:
    return f"SET LOCAL search_path = {PINNED_PATH}".encode()


def _beginning() -> str:
    return f"{_text('migrate', 'begin.sql')}\n{_text('migrate', 'found.sql')}"


def _applying(migration: Migration) -> str:
    record = _text("migrate", "record.sql")
    return (
        f"{migration.sql}\n{record.format(number=migration.number, name=migration.name, checksum=migration.checksum)}"
    )


def _text(*path: str) -> str:
    return files("holdfast.store").joinpath("sql", *path).read_text("utf-8")


@contextmanager
def _missing_told() -> Iterator[None]:
    try:
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
        raise SchemaMissing from error
