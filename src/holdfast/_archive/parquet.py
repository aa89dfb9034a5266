"""Writes the rows of a period into a Parquet file, in bounded memory.

Arrow parses PostgreSQL's CSV and writes the file: no row becomes a Python object. A chunk of the stream is one row
group, so memory is bounded by the chunk, or by one row that is larger. Rows are sorted by id, and each row group has
its least and greatest id: a search for one id reads one row group.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from holdfast._archive.columns import encoding_of, schema_of
from holdfast._archive.stream import chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    import psycopg
    import pyarrow as pa

    from holdfast._archive.columns import FileColumn
    from holdfast._store.own_tables import PeriodRows

# Bytes that the parser takes at once, unless a row is larger: they stay in the cache of the processor.
BLOCK = 1024 * 1024
# Bytes of the file that are handed on at once. Arrow writes many small pieces, and each call would wait for the thread
# that receives rows.
BUFFER = 4 * 1024 * 1024


class Unfit(Exception):  # noqa: N818 - names describe what happened
    """A column has a value that its type in Parquet does not hold."""

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__(", ".join(columns))
        self.columns = frozenset(columns)


class WrittenRows(NamedTuple):
    rows: int
    min_id: int | None
    max_id: int | None


class Digest:
    """Passes bytes on to a file, and computes their number and SHA-256."""

    def __init__(self, file: IO[bytes] | Any) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self._hash.update(data)
        size = len(memoryview(data))
        self.bytes += size
        self._file.write(bytes(data))
        return size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Mark as closed. The file below is closed by its owner, once all is well."""
        self.closed = True

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def write(  # noqa: PLR0913 - a source, a target, and what is written
    conn: psycopg.Connection[Any],
    rows: PeriodRows,
    columns: Sequence[FileColumn],
    file: Digest,
    *,
    metadata: dict[str, str],
    on_rows: Callable[[int], None],
) -> WrittenRows:
    """Write the rows into `file`. `on_rows` is called with the number of rows so far, after each row group.

    One thread receives rows while another converts, compresses and uploads them. Raises Unfit for columns that must be
    text: then the file is to be written anew.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = schema_of(columns, metadata)
    done = 0
    least: int | None = None
    greatest: int | None = None
    options = {"compression": "zstd", "write_page_index": True, "write_page_checksum": True, **encoding_of(columns)}
    with (
        pa.BufferedOutputStream(pa.PythonFile(file, mode="w"), BUFFER) as buffer,
        pq.ParquetWriter(buffer, schema, **options) as writer,
        ThreadPoolExecutor(1) as thread,
        closing(chunks(conn, rows, columns)) as received,
    ):
        waiting: Future[pa.Table] | None = None

        def convert(chunk: bytearray) -> pa.Table:
            table = parse(chunk, schema)
            writer.write_table(table, row_group_size=max(1, table.num_rows))
            return table

        def finish(future: Future[pa.Table]) -> None:
            nonlocal done, least, greatest
            table = future.result()
            done += table.num_rows
            if rows.id and table.num_rows:
                ids = table.column(rows.id)
                least = ids[0].as_py() if least is None else least
                greatest = ids[-1].as_py()
            on_rows(done)

        for chunk in received:
            if waiting is not None:
                finish(waiting)
            waiting = thread.submit(convert, chunk)
        if waiting is not None:
            finish(waiting)
    return WrittenRows(done, least, greatest)


def parse(chunk: bytearray, schema: pa.Schema) -> pa.Table:
    """Return the rows in PostgreSQL's CSV, in which an empty field without quotes is null."""
    import pyarrow as pa

    try:
        return _parse(chunk, schema, BLOCK)
    except pa.ArrowInvalid:
        # A row may be larger than a block.
        try:
            return _parse(chunk, schema, len(chunk) + 1)
        except pa.ArrowInvalid as exc:
            if unfit := [field.name for field in schema if not _fits(chunk, schema, field)]:
                raise Unfit(unfit) from exc
            raise


def _fits(chunk: bytearray, schema: pa.Schema, field: pa.Field) -> bool:
    import pyarrow as pa

    try:
        _parse(chunk, schema, len(chunk) + 1, only=[field.name])
    except pa.ArrowInvalid:
        return False
    return True


def _parse(chunk: bytearray, schema: pa.Schema, block: int, only: Sequence[str] | None = None) -> pa.Table:
    """Parse all columns, or `only` these."""
    import pyarrow as pa
    from pyarrow import csv

    return csv.read_csv(
        pa.BufferReader(pa.py_buffer(chunk)),
        read_options=csv.ReadOptions(column_names=schema.names, block_size=block, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=schema,
            include_columns=only,
            null_values=[""],
            true_values=["t", "true"],
            false_values=["f", "false"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
