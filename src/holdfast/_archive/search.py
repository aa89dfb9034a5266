"""Finds rows in the files of the archive: one job with its attempts, one event, or the answer of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._archive.location import ArchiveError, translated
from holdfast._distribution import needed
from holdfast._store.archive import FAMILIES, ID_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from obstore.store import ObjectStore

    from holdfast._store.archive import Export


class Found(NamedTuple):
    """A row, and the file that it is in."""

    export: Export
    row: Mapping[str, Any]


def find(store: ObjectStore, exports: Iterable[Export], id_: int) -> list[Found]:
    """Return the rows with this id. Of each file, its end and the row groups that may hold the id are read."""
    found = []
    for export in exports:
        column = ID_COLUMN.get(export.source, "id")
        found += [Found(export, row) for row in _rows(store, export, column, id_)]
    return found


def _rows(store: ObjectStore, export: Export, column: str, id_: int) -> list[dict[str, Any]]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from holdfast._archive.filesystem import ObjectReader

    if export.object is None:
        return []
    reader = ObjectReader(store, export.object)
    file = pq.ParquetFile(reader)
    place = file.schema_arrow.get_field_index(column)
    rows: list[dict[str, Any]] = []
    for group in range(file.num_row_groups):
        statistics = file.metadata.row_group(group).column(place).statistics
        if statistics is not None and statistics.has_min_max and not statistics.min <= id_ <= statistics.max:
            continue
        # The ids alone first: most groups whose range holds the id do not have it. Read in this thread: one of Arrow's
        # that still holds the file while the interpreter ends aborts the process.
        found = pc.equal(file.read_row_group(group, columns=[column], use_threads=False).column(column), id_)
        if pc.any(found).as_py():
            reader.hold(*_span(file.metadata.row_group(group)))
            rows += file.read_row_group(group, use_threads=False).filter(found).to_pylist()
    return rows


def _span(group: Any) -> tuple[int, int]:
    """Return where a row group starts and ends in its file: its columns lie side by side."""
    columns = [group.column(place) for place in range(group.num_columns)]
    starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    ends = [start + column.total_compressed_size for start, column in zip(starts, columns, strict=True)]
    return min(starts), max(ends)


def query(store: ObjectStore, exports: Sequence[Export], text: str) -> Any:
    """Run a query of SQL over the files with DuckDB, and return its result.

    Each source is a table: `job_history`, `job_failed`, `attempt`, `event`, `delivery`, `run`, or `"public.tenders"`.
    DuckDB asks Arrow for the columns and row groups that a query needs, so the others are not fetched. It can reach
    neither other files nor the network. Raises ArchiveError if the query fails.
    """
    with needed("a query of the archive", "duckdb"):
        import duckdb

    by_source: dict[str, list[Export]] = {}
    for export in exports:
        if export.object is not None:
            by_source.setdefault(export.source, []).append(export)
    connection = duckdb.connect(config={"enable_external_access": "false", "python_enable_replacements": "false"})
    try:
        for source, files in by_source.items():
            with translated():
                connection.register(source, _dataset(store, source, files))
        return connection.execute(text)
    except duckdb.Error as exc:
        known = ", ".join(f'"{source}"' if "." in source else source for source in sorted(by_source))
        raise ArchiveError(f"the query failed: {exc}\nTables of the archive: {known or 'none'}") from exc


def _dataset(store: ObjectStore, source: str, files: Sequence[Export]) -> Any:
    """Return the files of a source as one table, with the columns that any of them has: null where a file lacks one."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
    from pyarrow.fs import PyFileSystem

    from holdfast._archive.filesystem import BucketFiles, open_file

    # The files of a family have the same columns if its schema had the same version.
    differing = {file.schema_version: file for file in files}.values() if source in FAMILIES else files
    schemas = [pq.read_schema(open_file(store, str(file.object))) for file in differing]
    # Only the columns are to fit together, and not their types in PostgreSQL or the description of the file.
    plain = [pa.schema([field.remove_metadata() for field in schema]) for schema in schemas]
    # A column that is text in one file, since a value was no other, is text in all.
    texts = {field.name for schema in plain for field in schema if pa.types.is_string(field.type)}
    plain = [
        pa.schema([field.with_type(pa.string()) if field.name in texts else field for field in schema])
        for schema in plain
    ]
    try:
        schema = pa.unify_schemas(plain, promote_options="permissive")
    except pa.ArrowTypeError as exc:
        raise ArchiveError(f"the files of {source} do not fit together: query fewer of them: {exc}") from exc
    names = [str(file.object) for file in files]
    return ds.dataset(names, schema=schema, filesystem=PyFileSystem(BucketFiles(store)), format="parquet")
