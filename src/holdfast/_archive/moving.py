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

from holdfast._archive.catalog import (
    fetch,
    is_read_by_place,
    read_archived,
    read_edges,
    read_primary_key,
    read_references,
    read_types,
)
from holdfast._archive.location import ArchiveError
from holdfast._archive.tables import SCHEMA, CalendarSpan, month_after

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from datetime import date

    from holdfast._archive.catalog import Reference
    from holdfast._archive.tables import Archive

    Connection = psycopg.AsyncConnection[Any]

BATCH = 1_000
_TIMES = ("timestamp with time zone", "timestamp without time zone", "date")
# Each statement has a snapshot of its own, as `_delete` needs. Months are those of UTC. A scan starts at the beginning
# of the table, as `_Batches` needs. A lock that is not given within two seconds is left for the next tick.
_ISOLATION = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
_SESSION = (
    "SELECT pg_catalog.set_config('timezone', 'UTC', true), pg_catalog.set_config('datestyle', 'ISO', true), "
    "pg_catalog.set_config('synchronize_seqscans', 'off', true), pg_catalog.set_config('lock_timeout', '2s', true)"
)
# Older rows stay: the name of their month would not have six digits.
_OLDEST = "1000-01-01"
# No table can have this name, so that it hides none.
_REFERRING = sql.Identifier("referring.row")


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
    return in_order(archives, await read_edges(conn)) if archives else []


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
        batches = await _Batches.of(conn, archive, columns, batch)
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
    async with conn.transaction():
        await conn.execute(_ISOLATION)
        await conn.execute(_SESSION)
        yield


class _Batches:
    """Moves the rows of one table, a batch after the other."""

    def __init__(self, conn: Connection, archive: Archive, columns: Sequence[str], batch: int) -> None:
        self._conn = conn
        self._archive = archive
        self._columns = columns
        self._batch = batch
        self._references: list[Reference] = []
        self._by_place = False
        self._after: str | None = None
        self._gone = 0

    @classmethod
    async def of(cls, conn: Connection, archive: Archive, columns: Sequence[str], batch: int) -> _Batches:
        batches = cls(conn, archive, columns, batch)
        batches._references = await read_references(conn, archive)
        batches._by_place = await is_read_by_place(conn, archive)
        return batches

    async def next(self) -> tuple[Sequence[Chosen], int]:
        """Move the next rows. Return those that were chosen, and how many of them have left."""
        async with months_of_utc(self._conn):
            chosen = [Chosen(*row) for row in await fetch(self._conn, self._choose())]
            for month in sorted({row.month for row in chosen}):
                await _ensure_month(self._conn, self._archive, month)
            gone = 0
            for table in {row.table for row in chosen}:
                places = [row.place for row in chosen if row.table == table]
                gone += (await self._conn.execute(self._delete(table, places))).rowcount
        if chosen:
            self._after = chosen[-1].position
        self._gone += gone
        return chosen, gone

    def again(self) -> bool:
        """Return whether to begin anew: rows that referred to others of this table have left."""
        own = (self._archive.schema, self._archive.name)
        begin = self._gone > 0 and any((reference.schema, reference.table) == own for reference in self._references)
        self._after, self._gone = None, 0
        return begin

    def _choose(self) -> sql.Composed:
        """Return a query that locks the next rows which may leave, and skips those that another transaction has locked.

        It goes on where the last batch ended: rows that are old and stay are not read again for every batch. The rows
        come in the order of time if an index has it, and else in the order in which they are stored: to sort a table
        for each batch would take hours.
        """
        at = sql.Identifier(self._archive.at)
        position = sql.SQL("ctid") if self._by_place else at
        conditions = [*self._old(), *self._unreferenced()]
        if self._after is not None:
            # Equal times may be on both sides of the end of a batch.
            passed = sql.SQL("{} > {}::tid") if self._by_place else sql.SQL("{} >= {}")
            conditions.append(passed.format(position, sql.Literal(self._after)))
        return sql.SQL(
            "SELECT ctid::text, tableoid::bigint, {position}::text, "
            "pg_catalog.date_trunc('month', {at}::timestamp)::date "
            "FROM {table} WHERE {conditions} {order} LIMIT {batch} FOR UPDATE SKIP LOCKED"
        ).format(
            position=position,
            at=at,
            table=self._archive.table_name,
            conditions=sql.SQL(" AND ").join(conditions),
            order=sql.SQL("") if self._by_place else sql.SQL("ORDER BY {}").format(at),
            batch=sql.Literal(self._batch),
        )

    def _delete(self, table: int, places: list[str]) -> sql.Composed:
        """Return a statement that moves locked rows by their places.

        It looks for references anew: a row that refers to one of these may have been committed just before it was
        locked, and no other can be since. There are no parameters, since a name may have a percent sign.
        """
        names = sql.SQL(", ").join(map(sql.Identifier, self._columns))
        return sql.SQL(
            "WITH gone AS (DELETE FROM {table} WHERE {conditions} RETURNING {names}) "
            "INSERT INTO {parent} ({names}) SELECT {names} FROM gone"
        ).format(
            table=self._archive.table_name,
            conditions=sql.SQL(" AND ").join(
                [
                    sql.SQL("ctid = ANY ({}::tid[])").format(sql.Literal(places)),
                    sql.SQL("tableoid = {}").format(sql.Literal(table)),
                    *self._unreferenced(),
                ]
            ),
            parent=self._archive.archived,
            names=names,
        )

    def _old(self) -> list[sql.Composable]:
        at = sql.Identifier(self._archive.at)
        hot = str(CalendarSpan.parse("hot", self._archive.hot))
        conditions: list[sql.Composable] = [
            sql.SQL("{} < pg_catalog.now() - {}::interval").format(at, sql.Literal(hot)),
            sql.SQL("{} >= {}").format(at, sql.Literal(_OLDEST)),
        ]
        if self._archive.where:
            # On a line of its own, since it may end in a comment.
            conditions.append(sql.SQL("({}\n)").format(sql.SQL(self._archive.where)))
        return conditions

    def _unreferenced(self) -> list[sql.Composable]:
        """Return that no other row refers to a row, for each foreign key. A row may refer to itself."""
        conditions: list[sql.Composable] = []
        own = sql.Identifier(self._archive.name)
        for reference in self._references:
            pairs = zip(reference.columns, reference.to_columns, strict=True)
            same = [
                sql.SQL("{}.{} = {}.{}").format(_REFERRING, sql.Identifier(column), own, sql.Identifier(to))
                for column, to in pairs
            ]
            if (reference.schema, reference.table) == (self._archive.schema, self._archive.name):
                place = "({row}.tableoid, {row}.ctid) <> ({own}.tableoid, {own}.ctid)"
                same.append(sql.SQL(place).format(row=_REFERRING, own=own))
            conditions.append(
                sql.SQL("NOT EXISTS (SELECT FROM {} AS {} WHERE {})").format(
                    sql.Identifier(reference.schema, reference.table), _REFERRING, sql.SQL(" AND ").join(same)
                )
            )
        return conditions


async def _prepare(conn: Connection, archive: Archive) -> list[str]:
    """Create the table in the schema `archive`, or give it the columns that the table got since. Return the columns."""
    types = await read_types(conn, archive.table_name)
    if not types:
        raise ArchiveError(f"Archive: there is no table {archive.source}")
    if archive.at not in types:
        raise ArchiveError(f"Archive: {archive.source} has no column {archive.at}: there are {', '.join(types)}")
    if types[archive.at] not in _TIMES:
        raise ArchiveError(f"Archive: {archive.source}.{archive.at} is of type {types[archive.at]}, and not a time")
    existing = await read_archived(conn, archive.archived)
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
        archived = await read_types(conn, archive.archived)
        for name, type_ in types.items():
            if name not in archived:
                change = sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(archive.archived, _declared(name, type_))
                await conn.execute(change)
            elif archived[name] != type_:
                retype = sql.SQL("ALTER TABLE {} ALTER COLUMN {} TYPE {}")
                type_sql = sql.SQL(type_)  # as the server writes it
                await conn.execute(retype.format(archive.archived, sql.Identifier(name), type_sql))
    return list(types)


async def _create(conn: Connection, archive: Archive, types: dict[str, str]) -> None:
    """Create a table that holds the months, with an index by which a month is exported in the order of ids."""
    # IF NOT EXISTS asks for the right to create schemas also where there is one.
    if await fetch(conn, "SELECT pg_catalog.to_regnamespace(%s)", [SCHEMA]) == [(None,)]:
        await conn.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(SCHEMA)))
    declared = sql.SQL(", ").join(_declared(name, type_) for name, type_ in types.items())
    table = sql.SQL("CREATE TABLE {} ({}) PARTITION BY RANGE ({})")
    await conn.execute(table.format(archive.archived, declared, sql.Identifier(archive.at)))
    comment = sql.SQL("COMMENT ON TABLE {} IS {}")
    await conn.execute(comment.format(archive.archived, sql.Literal(archive.comment)))
    if key := await read_primary_key(conn, archive):
        index = sql.SQL("CREATE INDEX ON {} ({})")
        await conn.execute(index.format(archive.archived, sql.Identifier(key)))


async def _ensure_month(conn: Connection, archive: Archive, month: date) -> None:
    statement = sql.SQL("CREATE TABLE IF NOT EXISTS {} PARTITION OF {} FOR VALUES FROM ({}) TO ({})")
    bounds = (sql.Literal(month.isoformat()), sql.Literal(month_after(month).isoformat()))
    await conn.execute(statement.format(archive.month(month), archive.archived, *bounds))


@asynccontextmanager
async def _explained(archive: Archive) -> AsyncIterator[None]:
    """Raise ArchiveError in place of an error of PostgreSQL about the declaration, or about the user's rights."""
    try:
        yield
    except (psycopg.ProgrammingError, psycopg.DataError, psycopg.IntegrityError, psycopg.NotSupportedError) as exc:
        said = exc.diag.message_primary or type(exc).__name__
        raise ArchiveError(f"Archive of {archive.source}: {said}") from exc


def _declared(name: str, type_: str) -> sql.Composed:
    return sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_))  # as the server writes it
