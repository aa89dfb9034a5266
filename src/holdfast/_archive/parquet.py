"""Writes the rows of a period into a Parquet file, in bounded memory, and reads such files back.

PostgreSQL sends the rows as CSV, which it and Arrow both convert in C: no row becomes a Python object. A chunk of the
stream is one row group, so memory is bounded by the chunk, or by one row that is larger. Rows are sorted by id, and
each row group knows its least and greatest id: a search for one id reads one row group.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from psycopg import sql
from psycopg.pq import ExecStatus

from holdfast._archive.columns import FileColumn, schema_of, select_list
from holdfast._archive.location import ArchiveError
from holdfast._store.statement import PINNED_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    import psycopg
    import pyarrow as pa
    from psycopg.pq.abc import PGconn

# Bytes of CSV in a row group.
CHUNK = 8 * 1024 * 1024
# PeriodRows that one statement reads where they can be read in slices: a snapshot that is held for long stops vacuum.
SLICE = 500_000


class PeriodRows(NamedTuple):
    """The rows to write: those of `relation` whose column `at` is in a period."""

    relation: str
    """Quoted, with its schema."""
    at: str
    starts_on: str
    ends_on: str
    id: str | None
    """The column to sort by."""
    unique: bool
    """Whether an id occurs once, and has an index: then the rows are read in slices."""
    late: bool
    """Whether the relation has the column `late`, which is null in rows that are in their partition."""


class Written(NamedTuple):
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


def read_columns(conn: psycopg.Connection[Any], rows: PeriodRows) -> list[FileColumn]:
    """Return the columns of a table in their order, without the column `late` of a family."""
    with _settings(conn):
        found = conn.execute(
            "SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a "
            "WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            [rows.relation],
        ).fetchall()
    return [FileColumn(name, type_) for name, type_ in found if not (rows.late and name == "late")]


def write(  # noqa: PLR0913 - a source, a target, and what is written
    conn: psycopg.Connection[Any],
    rows: PeriodRows,
    columns: Sequence[FileColumn],
    file: Digest,
    *,
    metadata: dict[str, str],
    on_rows: Callable[[int], None],
) -> Written:
    """Write the rows into `file`. `on_rows` is called with the number of rows so far, after each row group.

    One thread receives rows while another converts, compresses and uploads them.
    """
    import pyarrow.parquet as pq

    schema = schema_of(columns, metadata)
    done = 0
    least: int | None = None
    greatest: int | None = None
    with (
        pq.ParquetWriter(file, schema, compression="zstd", write_page_index=True, write_page_checksum=True) as writer,
        ThreadPoolExecutor(1) as thread,
    ):
        waiting: Future[pa.Table] | None = None

        def convert(chunk: bytes) -> pa.Table:
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

        for chunk in _chunks(conn, rows, columns):
            if waiting is not None:
                finish(waiting)
            waiting = thread.submit(convert, chunk)
        if waiting is not None:
            finish(waiting)
    return Written(done, least, greatest)


def parse(chunk: bytes, schema: pa.Schema) -> pa.Table:
    """Return the rows in PostgreSQL's CSV, in which an empty field without quotes is null."""
    from pyarrow import csv

    return csv.read_csv(
        BytesIO(chunk),
        read_options=csv.ReadOptions(column_names=schema.names, block_size=len(chunk) + 1, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=schema,
            null_values=[""],
            true_values=["t", "true"],
            false_values=["f", "false"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    ).cast(schema)


def _chunks(conn: psycopg.Connection[Any], rows: PeriodRows, columns: Sequence[FileColumn]) -> Iterator[bytes]:
    place = None if rows.id is None else [column.name for column in columns].index(rows.id)
    after: int | None = None
    while True:
        count, last, buffer, size = 0, b"", [], 0
        for row in _copy(conn, _query(rows, columns, after=after)):
            count += 1
            last = row
            buffer.append(row)
            size += len(row)
            if size >= CHUNK:
                yield b"".join(buffer)
                buffer, size = [], 0
        if buffer:
            yield b"".join(buffer)
        if not rows.unique or count < SLICE or place is None:
            return
        after = int(last.split(b",", place + 1)[place])


def _query(rows: PeriodRows, columns: Sequence[FileColumn], *, after: int | None) -> sql.Composed:
    """Return the COPY of a slice. The literals have no type of their own, so they take that of their column."""
    at = sql.Identifier(rows.at)
    conditions: list[sql.Composable] = [
        sql.SQL("{} >= {}").format(at, sql.Literal(rows.starts_on)),
        sql.SQL("{} < {}").format(at, sql.Literal(rows.ends_on)),
    ]
    if rows.late:
        conditions.append(sql.SQL("late IS NULL"))
    if after is not None and rows.id:
        conditions.append(sql.SQL("{} > {}").format(sql.Identifier(rows.id), sql.Literal(after)))
    return sql.SQL("COPY (SELECT {} FROM {} WHERE {}{}{}) TO STDOUT (FORMAT csv, ENCODING 'UTF8')").format(
        select_list(columns),
        sql.SQL(rows.relation),  # quoted by the server
        sql.SQL(" AND ").join(conditions),
        sql.SQL(" ORDER BY {}").format(sql.Identifier(rows.id)) if rows.id else sql.SQL(""),
        sql.SQL(" LIMIT {}").format(sql.Literal(SLICE)) if rows.unique else sql.SQL(""),
    )


def _copy(conn: psycopg.Connection[Any], query: sql.Composed) -> Iterator[bytes]:
    """Yield the rows of a COPY. libpq is called directly: ten million rows cost seconds, and not a minute."""
    pgconn: PGconn = conn.pgconn
    with _settings(conn):
        result = pgconn.exec_(query.as_bytes(conn))
        if result.status != ExecStatus.COPY_OUT:
            raise ArchiveError(result.get_error_message())
        receive = pgconn.get_copy_data
        while True:
            size, row = receive(0)
            if size < 0:
                break
            yield bytes(row)
        while (end := pgconn.get_result()) is not None:
            if end.status != ExecStatus.COMMAND_OK:
                raise ArchiveError(end.get_error_message())


@contextmanager
def _settings(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Show values in one form, and read rows by an index in the order of ids rather than sort them all.

    For one transaction: behind a pooler the session is shared.
    """
    settings = {
        "search_path": PINNED_PATH,
        "timezone": "UTC",
        "datestyle": "ISO",
        "intervalstyle": "iso_8601",
        "extra_float_digits": "1",
        "bytea_output": "hex",
        "enable_sort": "off",
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "statement_timeout": "0",
    }
    with conn.transaction():
        conn.execute(
            "SELECT pg_catalog.set_config(s.name, s.value, true) FROM ROWS FROM "
            "(pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::text[])) AS s (name, value)",
            [list(settings), list(settings.values())],
        )
        yield
