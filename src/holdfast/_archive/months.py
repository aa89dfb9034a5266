"""The months in the schema `archive`: those to export, and the end of one that is verified."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg import errors

from holdfast._archive.incomplete import explain
from holdfast._archive.moving import months_of_utc, tuples
from holdfast._archive.tables import CalendarSpan, month_after
from holdfast._drivers import run
from holdfast._logs.log import Log
from holdfast._store.archive import Period, export_again, is_archived_month, record_dropped, record_incomplete
from holdfast._store.archive import closed_months as list_closed
from holdfast._store.catalog import read_primary_key, table_exists
from holdfast._store.own_tables import count_rows, drop_table, lock_against_writers

if TYPE_CHECKING:
    from psycopg import sql

    from holdfast._archive.tables import Archive
    from holdfast._store.archive import Export
    from holdfast._store.statement import Statement

    Connection = psycopg.AsyncConnection[Any]

log = Log(__name__)

_MORE = "rows were added after the export"


async def closed_months(conn: Connection, archive: Archive) -> list[Period]:
    """Return the months of a table to export, oldest first: their rows are all older than `hot`.

    A table in the schema `archive` that Holdfast has not made is left alone, and `cleanup` reports it.

    A month that was dropped, and got rows again since, has another part.
    """
    hot = str(CalendarSpan.parse("hot", archive.hot))
    found = await run(
        conn, list_closed(archive.source, archive.archived.as_string(conn), comment=archive.comment, hot=hot)
    )
    key = await run(conn, read_primary_key(archive.table_name.as_string(conn)))
    periods = []
    for month in found:
        starts_on = date(int(month.partition[-6:-2]), int(month.partition[-2:]), 1)
        periods.append(
            Period(
                archive.source,
                starts_on,
                month_after(starts_on),
                1 if month.part is None else month.part + (month.state == "dropped"),
                # Not the table of all months: an export would keep a new month from being added to it.
                archive.month(starts_on).as_string(conn),
                archive.at,
                month.rows_expected if month.rows_expected >= 0 else None,
                key,
            )
        )
    return periods


async def drop_month(
    conn: Connection, archive: Archive, verified: Export, fault: str | None = None
) -> Literal["dropped", "changed", "incomplete", "kept"]:
    """Drop a verified month if it still has as many rows as its file, and record it in the same transaction.

    Were it recorded later, a row that arrives in between would make a new month of the same name, and the file would be
    replaced. `fault`: why the file is not trusted. Return "changed" if the month is to be exported anew, "incomplete"
    if it has fewer rows than its file, so that both are kept, and "kept" if another transaction uses it now, or if the
    table of this name is not one that Holdfast has made.
    """
    part = archive.month(verified.starts_on)
    rows, found = verified.rows or 0, 0
    try:
        async with months_of_utc(conn):
            exists = await run(conn, table_exists(part.as_string(conn)))
            if exists:
                # No row comes or goes while they are counted, and readers are not kept waiting.
                await conn.execute(lock_against_writers(part))
                if not await run(conn, _is_ours(conn, archive, part)):
                    extra = {"source": archive.source, "starts_on": verified.starts_on.isoformat()}
                    log.warning("a month is kept: its table is not one that Holdfast has made", extra=extra)
                    return "kept"
                [(found,)] = await (await tuples(conn).execute(count_rows(part))).fetchall()
            if (exists or fault is not None) and found < rows:
                why = explain(archive.source, verified.starts_on, found=found, rows=rows, fault=fault)
                await run(conn, record_incomplete(verified, why))
                return "incomplete"
            if fault is not None or (exists and found != rows):
                await run(conn, export_again(verified, fault or _MORE))
                return "changed"
            if exists:
                await conn.execute(drop_table(part))
            if await run(conn, record_dropped(verified)):
                return "dropped"
            # Another process has changed the record since.
            raise psycopg.Rollback
    except (errors.LockNotAvailable, errors.DeadlockDetected):
        pass
    return "kept"


def _is_ours(conn: Connection, archive: Archive, month: sql.Identifier) -> Statement[bool]:
    return is_archived_month(month.as_string(conn), archive.archived.as_string(conn), comment=archive.comment)
