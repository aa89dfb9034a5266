"""Finds rows in the files of the archive: one job with its attempts, one event, or the answer of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._distribution import needed
from holdfast._store.archive import ID_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from obstore.store import ObjectStore

    from holdfast._store.archive import Export

JOB_SOURCES = ("job_history", "job_failed", "attempt")
EVENT_SOURCES = ("event", "delivery")


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

    from holdfast._archive.filesystem import open_file

    if export.object is None:
        return []
    file = pq.ParquetFile(open_file(store, export.object))
    place = file.schema_arrow.get_field_index(column)
    groups = []
    for group in range(file.num_row_groups):
        statistics = file.metadata.row_group(group).column(place).statistics
        if statistics is None or not statistics.has_min_max or statistics.min <= id_ <= statistics.max:
            groups.append(group)
    rows: list[dict[str, Any]] = []
    for group in groups:
        table = file.read_row_group(group)
        rows += table.filter(pc.equal(table.column(column), id_)).to_pylist()
    return rows


def query(store: ObjectStore, exports: Sequence[Export], text: str) -> Any:
    """Run a query of SQL over the files with DuckDB, and return its result.

    Each source is a table: `job_history`, `job_failed`, `attempt`, `event`, `delivery`, `run`, or `"public.tenders"`.
    DuckDB asks Arrow for the columns and row groups that a query needs, so the others are not fetched.
    """
    with needed("a query of the archive", "duckdb"):
        import duckdb
    import pyarrow.dataset as ds
    from pyarrow.fs import PyFileSystem

    from holdfast._archive.filesystem import BucketFiles

    files = PyFileSystem(BucketFiles(store))
    by_source: dict[str, list[str]] = {}
    for export in exports:
        if export.object is not None:
            by_source.setdefault(export.source, []).append(export.object)
    connection = duckdb.connect(config={"enable_external_access": "false"})
    for source, names in by_source.items():
        # The newest file first: a column that it has and older files lack is null there.
        connection.register(source, ds.dataset(names, filesystem=files, format="parquet"))
    return connection.execute(text)
