"""Streams the rows of a period out of PostgreSQL, as chunks of CSV.

libpq is called directly and no row is parsed here: ten million rows cost seconds, and not minutes.
"""

from __future__ import annotations

from contextlib import contextmanager
from select import select
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import sql
from psycopg.pq import ExecStatus

from holdfast._archive.columns import FileColumn, select_list
from holdfast._archive.location import ArchiveError
from holdfast._store.statement import PINNED_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg
    from psycopg.pq.abc import PGconn

# Bytes of CSV in a chunk.
CHUNK = 8 * 1024 * 1024
# Rows that one statement reads where they can be read in slices: a snapshot that is held for long stops vacuum.
SLICE = 200_000


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


class Copied:
    """The end of a COPY."""

    last: bytes = b""
    """Its last row; empty: it had none."""


def read_columns(conn: psycopg.Connection[Any], rows: PeriodRows) -> list[FileColumn]:
    """Return the columns of a table in their order, without the column `late` of a family."""
    with _settings(conn):
        found = conn.execute(
            "SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a "
            "WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            [rows.relation],
        ).fetchall()
    return [FileColumn(name, type_) for name, type_ in found if not (rows.late and name == "late")]


def chunks(conn: psycopg.Connection[Any], rows: PeriodRows, columns: Sequence[FileColumn]) -> Iterator[bytearray]:
    """Yield the rows as CSV, each chunk with whole rows: at least `CHUNK` bytes but for the last one of a slice."""
    place = None if rows.id is None else [column.name for column in columns].index(rows.id)
    after: int | None = None
    while True:
        copied = Copied()
        yield from _copy(conn, _query(rows, columns, after=after), copied)
        if not rows.unique or place is None or not copied.last:
            return
        after = int(copied.last.split(b",", place + 1)[place])


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


def _copy(conn: psycopg.Connection[Any], query: sql.Composed, copied: Copied) -> Iterator[bytearray]:
    """Yield the rows of a COPY, and note the last one."""
    pgconn: PGconn = conn.pgconn
    with _settings(conn):
        result = pgconn.exec_(query.as_bytes(conn))
        if result.status != ExecStatus.COPY_OUT:
            raise ArchiveError(result.get_error_message())
        receive, waited = pgconn.get_copy_data, ([pgconn.socket], (), ())
        # One buffer, and no list of rows: they would all be looked at by the garbage collector.
        chunk, row = bytearray(), memoryview(b"")
        try:
            while True:
                # Not the call that waits: it would keep the thread that writes the file from running.
                length, received = receive(1)
                if length > 0:
                    row = received
                    chunk += row
                    if len(chunk) >= CHUNK:
                        yield chunk
                        chunk = bytearray()
                elif length == 0:
                    select(*waited)
                    pgconn.consume_input()
                else:
                    break
            copied.last = bytes(row)
            if chunk:
                yield chunk
        except GeneratorExit:
            _stop(conn)
            raise
        while (end := pgconn.get_result()) is not None:
            if end.status != ExecStatus.COMMAND_OK:
                raise ArchiveError(end.get_error_message())


def _stop(conn: psycopg.Connection[Any]) -> None:
    """End a COPY whose other rows are not wanted."""
    conn.cancel_safe()
    while conn.pgconn.get_copy_data(0)[0] >= 0:
        pass
    while conn.pgconn.get_result() is not None:
        pass


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
