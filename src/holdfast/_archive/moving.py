"""Moves old rows of the application's tables into the schema `archive`, which is partitioned by month.

Each batch is one transaction that deletes rows from the table and inserts them into the archive, so a crash at any
point leaves every row in exactly one place. A row stays while another row refers to it, whatever the foreign key would
do: no row is lost to ON DELETE CASCADE. So a table that refers to another one is moved first.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from holdfast._archive.location import ArchiveError
from holdfast._archive.tables import SCHEMA, CalendarSpan, month_after
from holdfast._drivers import run
from holdfast._store.archive import export_months_again, move_settings
from holdfast._store.catalog import (
    is_read_by_place,
    list_references,
    read_archived_table,
    read_primary_key,
    read_types,
    references_to,
    schema_exists,
)
from holdfast._store.own_tables import (
    OldRows,
    add_column,
    change_type,
    create_archived,
    create_index,
    create_month,
    create_schema,
    describe_table,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from datetime import date

    from psycopg.rows import TupleRow

    from holdfast._archive.tables import Archive
    from holdfast._store.catalog import TypeName

    Connection = psycopg.AsyncConnection[Any]

BATCH = 1_000
_TIMES = ("timestamp with time zone", "timestamp without time zone", "date")


class Chosen(NamedTuple):
    """A locked row."""

    place: str
    table: int
    """Its own one, of a table with partitions."""
    position: str
    """By which the next batch goes on."""
    month: date


def in_order(archives: Sequence[Archive], references: Iterable[tuple[str, str]]) -> list[Archive]:
    """Return the archives so that a table that refers to another one comes before it.

    `references`: pairs of tables with their schemas, the first of which refers to the second.
    """
    edges = {(child, parent) for child, parent in references if child != parent}
    left, ordered = list(archives), []
    while left:
        named = {archive.source for archive in left}
        free = [archive for archive in left if not any((other, archive.source) in edges for other in named)]
        # Tables that refer to each other in a circle: each row waits until nothing refers to it.
        ordered += free or left[:1]
        left = [archive for archive in left if archive not in ordered]
    return ordered


async def order(conn: Connection, archives: Sequence[Archive]) -> list[Archive]:
    """Return the archives in the order of the foreign keys of the database."""
    return in_order(archives, await run(conn, list_references())) if archives else []


async def move(
    conn: Connection,
    archive: Archive,
    *,
    on_moved: Callable[[int], None],
    stopped: Callable[[], bool],
    batch: int = BATCH,
) -> int:
    """Move the rows of a table that are older than `hot`; return how many. `conn`: in autocommit mode.

    Raises ArchiveError if the table does not fit its declaration.
    """
    moved = 0
    async with _explained(archive):
        columns = await _prepare(conn, archive)
        batches = _Batches(conn, archive, await _old_rows(conn, archive, columns), batch)
        while not stopped():
            chosen, gone = await batches.next()
            if gone:
                moved += gone
                on_moved(gone)
            if len(chosen) < batch and not batches.again():
                break
    return moved


@asynccontextmanager
async def months_of_utc(conn: Connection) -> AsyncIterator[None]:
    """Begin a transaction with the settings that moving and dropping need."""
    # Each statement has a snapshot of its own: rows that were committed before it are seen.
    await conn.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
    async with conn.transaction():
        await run(conn, move_settings())
        yield


def tuples(conn: Connection) -> psycopg.AsyncCursor[TupleRow]:
    """Return a cursor whose rows are tuples, whatever the connection's are."""
    return conn.cursor(row_factory=tuple_row)


async def _old_rows(conn: Connection, archive: Archive, columns: Sequence[str]) -> OldRows:
    table = archive.table_name.as_string(conn)
    return OldRows(
        schema=archive.schema,
        name=archive.name,
        at=archive.at,
        hot=str(CalendarSpan.parse("hot", archive.hot)),
        where=archive.where,
        columns=columns,
        archived=archive.archived,
        references=await run(conn, references_to(table)),
        by_place=await run(conn, is_read_by_place(table, archive.at)),
    )


class _Batches:
    """Moves the rows of one table, a batch after the other."""

    def __init__(self, conn: Connection, archive: Archive, rows: OldRows, batch: int) -> None:
        self._conn = conn
        self._archive = archive
        self._rows = rows
        self._batch = batch
        self._after: str | None = None
        self._gone = 0

    async def next(self) -> tuple[Sequence[Chosen], int]:
        """Move the next rows. Return those that were chosen, and how many of them have left."""
        async with months_of_utc(self._conn), tuples(self._conn) as cursor:
            await cursor.execute(self._rows.choose(after=self._after, limit=self._batch))
            chosen = [Chosen(*row) for row in await cursor.fetchall()]
            months = sorted({row.month for row in chosen})
            for month in months:
                await _ensure_month(self._conn, self._archive, month)
            gone = 0
            for table in {row.table for row in chosen}:
                places = [row.place for row in chosen if row.table == table]
                gone += (await cursor.execute(self._rows.move(table, places))).rowcount
            if gone:
                await run(self._conn, export_months_again(self._archive.source, months))
        if chosen:
            self._after = chosen[-1].position
        self._gone += gone
        return chosen, gone

    def again(self) -> bool:
        """Return whether to begin anew: rows that referred to others of this table have left."""
        own = (self._archive.schema, self._archive.name)
        refers = any((reference.schema, reference.table) == own for reference in self._rows.references)
        begin = self._gone > 0 and refers
        self._after, self._gone = None, 0
        return begin


async def _prepare(conn: Connection, archive: Archive) -> list[str]:
    """Create the table in the schema `archive`, or give it the columns that the table got since. Return the columns."""
    types = await run(conn, read_types(archive.table_name.as_string(conn)))
    if not types:
        raise ArchiveError(f"Archive: there is no table {archive.source}")
    if archive.at not in types:
        raise ArchiveError(f"Archive: {archive.source} has no column {archive.at}: there are {', '.join(types)}")
    if types[archive.at] not in _TIMES:
        raise ArchiveError(f"Archive: {archive.source}.{archive.at} is of type {types[archive.at]}, and not a time")
    existing = await run(conn, read_archived_table(archive.archived.as_string(conn)))
    async with months_of_utc(conn):
        if existing is None:
            await _create(conn, archive, types)
            return list(types)
        if existing.comment != archive.comment:
            raise ArchiveError(
                f"Archive: there is a table {SCHEMA}.{archive.archived_name} that does not hold rows of "
                f"{archive.source}: rename it"
            )
        if existing.partition_key != f"RANGE ({sql.Identifier(archive.at).as_string(conn)})" and (
            existing.partition_key != f"RANGE ({archive.at})"
        ):
            raise ArchiveError(
                f"Archive: {SCHEMA}.{archive.archived_name} has its months by {existing.partition_key}, and not by "
                f"{archive.at}: rename the column there if it was renamed, or rename the table to begin a new one"
            )
        archived = await run(conn, read_types(archive.archived.as_string(conn)))
        for name, type_ in types.items():
            if name not in archived:
                await conn.execute(add_column(archive.archived, name, type_))
            elif archived[name] != type_:
                await conn.execute(change_type(archive.archived, name, type_))
    return list(types)


async def _create(conn: Connection, archive: Archive, types: Mapping[str, TypeName]) -> None:
    """Create a table that holds the months, with an index by which a month is exported in the order of ids."""
    # IF NOT EXISTS asks for the right to create schemas also where there is one.
    if not await run(conn, schema_exists(SCHEMA)):
        await conn.execute(create_schema(SCHEMA))
    await conn.execute(create_archived(archive.archived, types, at=archive.at))
    await conn.execute(describe_table(archive.archived, archive.comment))
    if key := await run(conn, read_primary_key(archive.table_name.as_string(conn))):
        await conn.execute(create_index(archive.archived, key))


async def _ensure_month(conn: Connection, archive: Archive, month: date) -> None:
    await conn.execute(create_month(archive.month(month), archive.archived, month, month_after(month)))


@asynccontextmanager
async def _explained(archive: Archive) -> AsyncIterator[None]:
    """Raise ArchiveError in place of an error of PostgreSQL about the declaration, or about the user's rights."""
    try:
        yield
    except (psycopg.ProgrammingError, psycopg.DataError, psycopg.IntegrityError, psycopg.NotSupportedError) as exc:
        reason = exc.diag.message_primary or type(exc).__name__
        raise ArchiveError(f"Archive of {archive.source}: {reason}") from exc
