"""Moves old rows of the application's tables into the schema `archive`, which is partitioned by month.

Each batch is one transaction that deletes rows from the table and inserts them into the archive, so a crash at any
point leaves every row in exactly one place. A row stays while another row refers to it, whatever the foreign key would
do: no row is lost to ON DELETE CASCADE. So a table that refers to another one is moved first.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import sql
from psycopg.rows import tuple_row

from holdfast._archive.location import ArchiveError
from holdfast._archive.tables import CalendarSpan
from holdfast._store.archive import Period

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import psycopg

    from holdfast._archive.tables import Archive

    Connection = psycopg.AsyncConnection[Any]

SCHEMA = "archive"
BATCH = 1_000
_TIMES = ("timestamp with time zone", "timestamp without time zone", "date")
# Days of the schema's months are days of UTC.
_SESSION = "SELECT pg_catalog.set_config('timezone', 'UTC', true), pg_catalog.set_config('lock_timeout', '2s', true)"


class _Reference(NamedTuple):
    """A foreign key that refers to a table."""

    schema: str
    table: str
    columns: list[str]
    to_columns: list[str]


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
    found = await _rows(
        conn,
        "SELECT cn.nspname || '.' || c.relname, pn.nspname || '.' || p.relname FROM pg_catalog.pg_constraint f "
        "JOIN pg_catalog.pg_class c ON c.oid = f.conrelid JOIN pg_catalog.pg_namespace cn ON cn.oid = c.relnamespace "
        "JOIN pg_catalog.pg_class p ON p.oid = f.confrelid JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace "
        "WHERE f.contype = 'f' LIMIT 10000",
    )
    return in_order(archives, found)


async def move(
    conn: Connection,
    archive: Archive,
    *,
    on_moved: Callable[[int], None],
    stopped: Callable[[], bool],
    batch: int = BATCH,
) -> int:
    """Move the rows of a table that are older than `hot`, oldest first; return how many. `conn`: in autocommit mode."""
    columns = await _prepare(conn, archive)
    choose, delete = await _choose(conn, archive, batch), _delete(archive, columns)
    moved = 0
    while not stopped():
        async with conn.transaction():
            await conn.execute(_SESSION)
            chosen = await _rows(conn, choose)
            for month in sorted({month for _, month in chosen}):
                await _ensure_month(conn, archive, month)
            await conn.execute(delete, [[place for place, _ in chosen]])
        if chosen:
            moved += len(chosen)
            on_moved(len(chosen))
        if len(chosen) < batch:
            break
    return moved


async def closed_months(conn: Connection, archive: Archive) -> list[Period]:
    """Return the months of a table to export, oldest first: no row is young enough to arrive any more.

    A month that was dropped, and got rows again since, has another part.
    """
    hot = CalendarSpan.parse("hot", archive.hot)
    found = await _rows(
        conn,
        "SELECT c.relname::text, c.reltuples::bigint, x.part, x.state FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid "
        "LEFT JOIN LATERAL (SELECT e.part, e.state, e.locked_until FROM holdfast.archive_exports e "
        "WHERE e.source = %(source)s AND e.starts_on = pg_catalog.to_date(pg_catalog.right(c.relname, 6), 'YYYYMM') "
        "ORDER BY e.part DESC LIMIT 1) AS x ON true "
        "WHERE i.inhparent = pg_catalog.to_regclass(%(parent)s) AND x.state IS DISTINCT FROM 'verified' "
        "AND coalesce(x.locked_until < pg_catalog.now(), true) "
        "AND pg_catalog.to_date(pg_catalog.right(c.relname, 6), 'YYYYMM') + interval '1 month' + %(hot)s::interval "
        "<= pg_catalog.now() AT TIME ZONE 'UTC' ORDER BY c.relname LIMIT 1000",
        {"source": archive.source, "parent": _parent(archive).as_string(conn), "hot": str(hot)},
    )
    key = await _primary_key(conn, archive)
    periods = []
    for relation, expected, part, state in found:
        starts_on = date(int(relation[-6:-2]), int(relation[-2:]), 1)
        number = 1 if part is None else part + (state == "dropped")
        periods.append(
            Period(
                archive.source,
                starts_on,
                _month_after(starts_on),
                number,
                _parent(archive).as_string(conn),
                archive.at,
                expected if expected >= 0 else None,
                key,
            )
        )
    return periods


async def drop_month(conn: Connection, archive: Archive, starts_on: date, *, rows: int) -> str:
    """Drop a verified month if it still has as many rows as its file. Return "dropped" or "changed"."""
    part = sql.Identifier(SCHEMA, _part_name(archive, starts_on))
    async with conn.transaction():
        await conn.execute(_SESSION)
        exists = await _rows(conn, "SELECT pg_catalog.to_regclass(%s)", [part.as_string(conn)])
        if exists[0][0] is not None:
            await conn.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(part))
            ((found,),) = await _rows(conn, sql.SQL("SELECT count(*) FROM {}").format(part))
            if found != rows:
                return "changed"
            await conn.execute(sql.SQL("DROP TABLE {}").format(part))
    return "dropped"


async def _prepare(conn: Connection, archive: Archive) -> list[str]:
    """Create the table in the schema `archive`, or add the columns that the table got since. Return the columns."""
    found = await _columns(conn, archive.schema, archive.name)
    if not found:
        raise ArchiveError(f"Archive: there is no table {archive.source}, or this user may not read it")
    types = dict(found)
    if archive.at not in types:
        raise ArchiveError(f"Archive: {archive.source} has no column {archive.at}: there are {', '.join(types)}")
    if types[archive.at] not in _TIMES:
        raise ArchiveError(f"Archive: {archive.source}.{archive.at} is of type {types[archive.at]}, and not a time")
    archived = dict(await _columns(conn, SCHEMA, archive.archived_name))
    async with conn.transaction():
        await conn.execute(_SESSION)
        if not archived:
            await conn.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
            declared = sql.SQL(", ").join(_declared(name, types[name]) for name in types)
            table = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}) PARTITION BY RANGE ({})")
            await conn.execute(table.format(_parent(archive), declared, sql.Identifier(archive.at)))
        for name in types.keys() - archived.keys() if archived else ():
            add = sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {}")
            await conn.execute(add.format(_parent(archive), _declared(name, types[name])))
    return list(types)


async def _choose(conn: Connection, archive: Archive, batch: int) -> sql.Composed:
    """Return a query that locks the next rows, and returns their places and months."""
    return sql.SQL(
        "SELECT t.ctid::text, pg_catalog.date_trunc('month', t.{at}::timestamp)::date FROM {table} AS t "
        "WHERE {condition} ORDER BY t.{at} LIMIT {batch} FOR UPDATE SKIP LOCKED"
    ).format(
        table=sql.Identifier(archive.schema, archive.name),
        at=sql.Identifier(archive.at),
        condition=await _condition(conn, archive),
        batch=sql.Literal(batch),
    )


def _delete(archive: Archive, columns: Sequence[str]) -> sql.Composed:
    """Return a statement that moves locked rows by their places."""
    return sql.SQL(
        "WITH gone AS (DELETE FROM {table} AS t WHERE t.ctid = ANY (%s::tid[]) RETURNING {qualified}) "
        "INSERT INTO {parent} ({names}) SELECT {names} FROM gone"
    ).format(
        table=sql.Identifier(archive.schema, archive.name),
        qualified=sql.SQL(", ").join(sql.Identifier("t", name) for name in columns),
        parent=_parent(archive),
        names=sql.SQL(", ").join(map(sql.Identifier, columns)),
    )


async def _condition(conn: Connection, archive: Archive) -> sql.Composed:
    """Return what a row must meet to leave: its age, the declared condition, and that no other row refers to it."""
    age = sql.SQL("t.{} < pg_catalog.now() - {}::interval").format(
        sql.Identifier(archive.at), sql.Literal(str(CalendarSpan.parse("hot", archive.hot)))
    )
    conditions: list[sql.Composable] = [age]
    if archive.where:
        conditions.append(sql.SQL("({})").format(sql.SQL(archive.where)))
    for reference in await _references(conn, archive):
        pairs = zip(reference.columns, reference.to_columns, strict=True)
        same = [sql.SQL("r.{} = t.{}").format(sql.Identifier(own), sql.Identifier(to)) for own, to in pairs]
        other = sql.Identifier(reference.schema, reference.table)
        conditions.append(
            sql.SQL("NOT EXISTS (SELECT FROM {} AS r WHERE {})").format(other, sql.SQL(" AND ").join(same))
        )
    return sql.SQL(" AND ").join(conditions)


async def _references(conn: Connection, archive: Archive) -> list[_Reference]:
    found = await _rows(
        conn,
        "SELECT n.nspname::text, c.relname::text, "
        "ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(f.conkey) WITH ORDINALITY AS k (num, place) "
        "JOIN pg_catalog.pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.num ORDER BY k.place), "
        "ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(f.confkey) WITH ORDINALITY AS k (num, place) "
        "JOIN pg_catalog.pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = k.num ORDER BY k.place) "
        "FROM pg_catalog.pg_constraint f JOIN pg_catalog.pg_class c ON c.oid = f.conrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE f.contype = 'f' AND f.conparentid = 0 AND f.confrelid = pg_catalog.to_regclass(%s) LIMIT 1000",
        [sql.Identifier(archive.schema, archive.name).as_string(conn)],
    )
    return [_Reference(*row) for row in found]


async def _ensure_month(conn: Connection, archive: Archive, month: date) -> None:
    part = sql.Identifier(SCHEMA, _part_name(archive, month))
    statement = sql.SQL("CREATE TABLE IF NOT EXISTS {} PARTITION OF {} FOR VALUES FROM ({}) TO ({})")
    until = _month_after(month).isoformat()
    await conn.execute(statement.format(part, _parent(archive), sql.Literal(month.isoformat()), sql.Literal(until)))


async def _primary_key(conn: Connection, archive: Archive) -> str | None:
    """Return the column of the table's primary key, if it is one whole number: files are sorted by it."""
    found = await _rows(
        conn,
        "SELECT a.attname::text FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a "
        "ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] WHERE i.indrelid = pg_catalog.to_regclass(%s) "
        "AND i.indisprimary AND i.indnkeyatts = 1 "
        "AND a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)",
        [sql.Identifier(archive.schema, archive.name).as_string(conn)],
    )
    return found[0][0] if found else None


async def _columns(conn: Connection, schema: str, name: str) -> list[tuple[str, str]]:
    return await _rows(
        conn,
        "SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a "
        "WHERE a.attrelid = pg_catalog.to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        [sql.Identifier(schema, name).as_string(conn)],
    )


async def _rows(conn: Connection, query: Any, parameters: Any = None) -> list[Any]:
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(query, parameters)
        return await cursor.fetchall()


def _declared(name: str, type_: str) -> sql.Composed:
    return sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_))  # as the server writes it


def _parent(archive: Archive) -> sql.Identifier:
    return sql.Identifier(SCHEMA, archive.archived_name)


def _part_name(archive: Archive, month: date) -> str:
    return f"{archive.archived_name}_{month:%Y%m}"


def _month_after(month: date) -> date:
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)
