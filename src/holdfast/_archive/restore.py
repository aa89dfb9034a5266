"""Loads a file of the archive into a table, row for row as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql

from holdfast._archive.columns import columns_of
from holdfast._archive.location import ArchiveError
from holdfast._drivers import run_sync
from holdfast._store.archive import load_settings
from holdfast._store.catalog import schema_exists, type_exists
from holdfast._store.own_tables import create_schema, ensure_table, load_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from obstore.store import ObjectStore

    from holdfast._archive.columns import FileColumn
    from holdfast._store.archive import Export


class TargetTable(NamedTuple):
    """The table to load into."""

    schema: str
    name: str

    @property
    def quoted(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)


def restore(
    conn: psycopg.Connection[Any],
    store: ObjectStore,
    export: Export,
    target: TargetTable,
    *,
    on_rows: Callable[[int], None] | None = None,
) -> int:
    """Load a file into a new table, or add it to one, and return the number of rows.

    All of it is one transaction of `conn`. A new table has the columns and the types of the file. Raises ArchiveError
    if the number of rows is not that of the record.
    """
    import pyarrow.parquet as pq
    from pyarrow import csv

    from holdfast._archive.filesystem import open_file

    if export.object is None:
        return 0
    file = pq.ParquetFile(open_file(store, export.object), page_checksum_verification=True)
    columns = columns_of(file.schema_arrow)
    with conn.transaction():
        _check_types(conn, export.object, columns)
        run_sync(conn, load_settings())
        # IF NOT EXISTS asks for the right to create schemas also where there is one.
        if not run_sync(conn, schema_exists(sql.Identifier(target.schema).as_string(conn))):
            conn.execute(create_schema(target.schema))
        conn.execute(ensure_table(target.quoted, {column.name: column.type for column in columns}))
        load = load_rows(target.quoted, [column.name for column in columns])
        done = 0
        with conn.cursor() as cursor:
            with cursor.copy(load) as copy:
                for batch in file.iter_batches(batch_size=10_000):
                    csv.write_csv(batch, _Into(copy), csv.WriteOptions(include_header=False))
                    done += batch.num_rows
                    if on_rows is not None:
                        on_rows(done)
            loaded = cursor.rowcount
        if not done == loaded == export.rows:
            raise ArchiveError(
                f"{export.object}: {loaded:,} rows were loaded, and the record says {export.rows or 0:,}"
            )
    return done


def _check_types(conn: psycopg.Connection[Any], name: str, columns: Sequence[FileColumn]) -> None:
    """Raise ArchiveError unless each type in the file is a type of this database, and not some other piece of SQL."""
    for column in columns:
        try:
            with conn.transaction():
                known = run_sync(conn, type_exists(column.type))
        except psycopg.Error:
            known = False
        if not known:
            raise ArchiveError(f"{name}: the column {column.name} has the type {column.type!r:.60}, which is not known")


class _Into:
    """A file that writes into a COPY."""

    closed = False

    def __init__(self, copy: psycopg.Copy) -> None:
        self._copy = copy

    def write(self, data: Any) -> int:
        self._copy.write(bytes(data))
        return len(data)

    def flush(self) -> None: ...

    def close(self) -> None: ...
