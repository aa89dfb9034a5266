"""Reads from the catalog of PostgreSQL: the columns, keys and references of the application's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg.rows import tuple_row

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    from holdfast._archive.tables import Archive

    Connection = psycopg.AsyncConnection[Any]


class Reference(NamedTuple):
    """A foreign key that refers to a table."""

    schema: str
    table: str
    columns: list[str]
    to_columns: list[str]


class ArchivedTable(NamedTuple):
    """A table in the schema `archive`."""

    comment: str | None
    partition_key: str | None
    """As the server writes it, such as `RANGE (created_at)`."""


async def fetch(conn: Connection, query: Any, parameters: Any = None) -> list[Any]:
    """Return the rows of a query as tuples."""
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(query, parameters)
        return await cursor.fetchall()


async def read_types(conn: Connection, table: sql.Identifier) -> dict[str, str]:
    """Return the types of the columns of a table, in their order; none if there is no such table."""
    found = await fetch(
        conn,
        "SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a "
        "WHERE a.attrelid = pg_catalog.to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        [table.as_string(conn)],
    )
    return dict(found)


async def read_archived(conn: Connection, table: sql.Identifier) -> ArchivedTable | None:
    found = await fetch(
        conn,
        "SELECT pg_catalog.obj_description(c.oid, 'pg_class'), pg_catalog.pg_get_partkeydef(c.oid) "
        "FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass(%s)",
        [table.as_string(conn)],
    )
    return ArchivedTable(*found[0]) if found else None


async def read_edges(conn: Connection) -> list[tuple[str, str]]:
    """Return each pair of tables, with their schemas, the first of which refers to the second."""
    return await fetch(
        conn,
        "SELECT cn.nspname || '.' || c.relname, pn.nspname || '.' || p.relname FROM pg_catalog.pg_constraint f "
        "JOIN pg_catalog.pg_class c ON c.oid = f.conrelid JOIN pg_catalog.pg_namespace cn ON cn.oid = c.relnamespace "
        "JOIN pg_catalog.pg_class p ON p.oid = f.confrelid JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace "
        "WHERE f.contype = 'f' AND f.conparentid = 0 LIMIT 10000",
    )


async def read_references(conn: Connection, archive: Archive) -> list[Reference]:
    """Return the foreign keys that refer to a table."""
    found = await fetch(
        conn,
        "SELECT n.nspname::text, c.relname::text, "
        "ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(f.conkey) WITH ORDINALITY AS k (num, place) "
        "JOIN pg_catalog.pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.num ORDER BY k.place), "
        "ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(f.confkey) WITH ORDINALITY AS k (num, place) "
        "JOIN pg_catalog.pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = k.num ORDER BY k.place) "
        "FROM pg_catalog.pg_constraint f JOIN pg_catalog.pg_class c ON c.oid = f.conrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE f.contype = 'f' AND f.conparentid = 0 AND f.confrelid = pg_catalog.to_regclass(%s) LIMIT 1000",
        [archive.table_name.as_string(conn)],
    )
    return [Reference(*row) for row in found]


async def read_primary_key(conn: Connection, archive: Archive) -> str | None:
    """Return the column of the table's primary key, if it is one whole number: files are sorted by it."""
    found = await fetch(
        conn,
        "SELECT a.attname::text FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a "
        "ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] WHERE i.indrelid = pg_catalog.to_regclass(%s) "
        "AND i.indisprimary AND i.indnkeyatts = 1 "
        "AND a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)",
        [archive.table_name.as_string(conn)],
    )
    return found[0][0] if found else None


async def is_read_by_place(conn: Connection, archive: Archive) -> bool:
    """Return whether a table is one heap without an index that has its rows in the order of time."""
    ((found,),) = await fetch(
        conn,
        "SELECT c.relkind = 'r' AND NOT c.relhassubclass AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i "
        "JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
        "WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL AND a.attname = %s) "
        "FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass(%s)",
        [archive.at, archive.table_name.as_string(conn)],
    )
    return bool(found)
