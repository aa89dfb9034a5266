"""Loads a file of the archive into a table, row for row as it was."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql

from holdfast._archive.columns import columns_of
from holdfast._archive.location import ArchiveError
from holdfast._drivers import run_sync
from holdfast._store.archive import load_settings
from holdfast._store.catalog import proven_type, schema_exists
from holdfast._store.own_tables import create_schema, ensure_table, load_rows
from holdfast._store.statement import pin_names, read_path, restore_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from obstore.store import ObjectStore

    from holdfast._archive.columns import FileColumn
    from holdfast._archive.manifest import Manifest
    from holdfast._store.archive import Export
    from holdfast._store.catalog import TypeName


class TargetTable(NamedTuple):
    schema: str
    name: str

    @property
    def quoted(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)


def restore(
    conn: psycopg.Connection[Any],
    store: ObjectStore,
    export: Export | Manifest,
    target: TargetTable,
    *,
    on_rows: Callable[[int], None] | None = None,
) -> int:
    """Load a file into a new table, or add it to one, and return the number of rows.

    All of it is one transaction of `conn`. A new table has the columns and the types of the file. Raises ArchiveError
    if the file is not as it was recorded: then none of it was parsed.
    """
    import pyarrow.parquet as pq
    from pyarrow import csv

    from holdfast._archive.recorded import downloaded, parsing

    if export.object is None:
        return 0
    with downloaded(store, export) as copy, parsing(export.object), conn.transaction():
        file = pq.ParquetFile(copy, page_checksum_verification=True)
        columns = columns_of(file.schema_arrow)
        _ensure_table(conn, target, export.object, columns)
        run_sync(conn, load_settings())
        load = load_rows(target.quoted, [column.name for column in columns])
        done = 0
        with conn.cursor() as cursor:
            with cursor.copy(load) as rows:
                for batch in file.iter_batches(batch_size=10_000):
                    csv.write_csv(batch, _Into(rows), csv.WriteOptions(include_header=False))
                    done += batch.num_rows
                    if on_rows is not None:
                        on_rows(done)
            loaded = cursor.rowcount
        if not done == loaded == export.rows:
            raise ArchiveError(
                f"{export.object}: {loaded:,} rows were loaded, and the record says {export.rows or 0:,}"
            )
    return done


def _ensure_table(conn: psycopg.Connection[Any], target: TargetTable, name: str, columns: Sequence[FileColumn]) -> None:
    """Create the table unless it exists. `name`: of the file, for the error."""
    path = run_sync(conn, read_path())
    # The types in the file were written with this search_path.
    run_sync(conn, pin_names(local=True))
    types = {column.name: _proven_type(conn, name, column) for column in columns}
    # IF NOT EXISTS asks for the right to create schemas also where there is one.
    if not run_sync(conn, schema_exists(sql.Identifier(target.schema).as_string(conn))):
        conn.execute(create_schema(target.schema))
    conn.execute(ensure_table(target.quoted, types))
    run_sync(conn, restore_path(path))


def _proven_type(conn: psycopg.Connection[Any], name: str, column: FileColumn) -> TypeName:
    """Return the type of a column, or raise ArchiveError if the catalog does not write a type like this."""
    found = None
    with suppress(psycopg.Error), conn.transaction():
        found = run_sync(conn, proven_type(column.type))
    if found is None:
        raise ArchiveError(
            f"{name}: the column {column.name!r:.60} has the type {column.type!r:.60}, which is not known"
        )
    return found


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
