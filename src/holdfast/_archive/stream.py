"""Streams the rows of a period out of PostgreSQL, as chunks of CSV.

libpq is called directly and no row is parsed here: ten million rows cost seconds, and not minutes.
"""

from __future__ import annotations

from contextlib import contextmanager
from select import select
from typing import TYPE_CHECKING, Any

from psycopg.pq import ExecStatus

from holdfast._archive.columns import FileColumn
from holdfast._archive.location import ArchiveError
from holdfast._drivers import run_sync
from holdfast._store.archive import read_settings
from holdfast._store.catalog import read_types

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    import psycopg
    from psycopg import sql
    from psycopg.pq.abc import PGconn

    from holdfast._store.own_tables import PeriodRows

# Bytes of CSV in a chunk.
CHUNK = 8 * 1024 * 1024
# Rows that one statement reads where they can be read in slices: a snapshot that is held for long stops vacuum.
SLICE = 200_000


def read_columns(conn: psycopg.Connection[Any], rows: PeriodRows) -> list[FileColumn]:
    """Return the columns of a table in their order, without the column `late` of a family."""
    with _settings(conn):
        found = run_sync(conn, read_types(rows.relation))
    if not found:
        raise ArchiveError(f"there is no table {rows.relation}")
    return [FileColumn(name, type_) for name, type_ in found.items() if not (rows.late and name == "late")]


def chunks(
    conn: psycopg.Connection[Any], rows: PeriodRows, columns: Sequence[FileColumn]
) -> Generator[bytearray, None, None]:
    """Yield the rows as CSV, each chunk with whole rows: at least `CHUNK` bytes but for the last one of a slice."""
    names = [column.name for column in columns]
    place = None if rows.id is None else names.index(rows.id)
    after: int | None = None
    while True:
        last = yield from _copy(conn, rows.copy(names, after=after, limit=SLICE))
        if not rows.unique or place is None or not last:
            return
        after = int(last.split(b",", place + 1)[place])


def _copy(conn: psycopg.Connection[Any], query: sql.Composed) -> Generator[bytearray, None, bytes]:
    """Yield the rows of a COPY, and return the last one; empty: it had none."""
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
            last = bytes(row)
            if chunk:
                yield chunk
        except GeneratorExit:
            _stop(conn)
            raise
        while (end := pgconn.get_result()) is not None:
            if end.status != ExecStatus.COMMAND_OK:
                raise ArchiveError(end.get_error_message())
        return last


def _stop(conn: psycopg.Connection[Any]) -> None:
    """End a COPY whose other rows are not wanted."""
    conn.cancel_safe()
    while conn.pgconn.get_copy_data(0)[0] >= 0:
        pass
    while conn.pgconn.get_result() is not None:
        pass


@contextmanager
def _settings(conn: psycopg.Connection[Any]) -> Iterator[None]:
    with conn.transaction():
        run_sync(conn, read_settings())
        yield
