"""Finds rows in the files of the archive: one job with its attempts, or one event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._store.archive import ID_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from obstore.store import ObjectStore

    from holdfast._archive.filesystem import ObjectReader
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
    from holdfast._archive.filesystem import ObjectReader
    from holdfast._archive.recorded import check_quickly, parsing

    if export.object is None:
        return []
    reader = ObjectReader(check_quickly(store, export))
    with parsing(export.object):
        return _rows_in(reader, column, id_)


def _rows_in(reader: ObjectReader, column: str, id_: int) -> list[dict[str, Any]]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

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
