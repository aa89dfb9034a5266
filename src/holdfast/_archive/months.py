"""The months in the schema `archive`: those to export, and the end of one that is verified."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg import errors, sql

from holdfast._archive.catalog import fetch, read_primary_key
from holdfast._archive.moving import months_of_utc
from holdfast._archive.tables import CalendarSpan, month_after
from holdfast._drivers import run
from holdfast._store.archive import Period, export_again, record_dropped

if TYPE_CHECKING:
    from holdfast._archive.tables import Archive
    from holdfast._store.archive import Export

    Connection = psycopg.AsyncConnection[Any]

_CHANGED = "rows were added or deleted after the export"


async def closed_months(conn: Connection, archive: Archive) -> list[Period]:
    """Return the months of a table to export, oldest first: their rows are all older than `hot`.

    A month that was dropped, and got rows again since, has another part.
    """
    hot = CalendarSpan.parse("hot", archive.hot)
    found = await fetch(
        conn,
        "SELECT c.relname::text, c.reltuples::bigint, x.part, x.state FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid "
        "LEFT JOIN LATERAL (SELECT e.part, e.state, e.locked_until FROM holdfast.archive_exports e "
        "WHERE e.source = %(source)s AND e.starts_on = pg_catalog.to_date(pg_catalog.right(c.relname, 6), 'YYYYMM') "
        "ORDER BY e.part DESC LIMIT 1) AS x ON true "
        "WHERE i.inhparent = pg_catalog.to_regclass(%(parent)s) AND x.state IS DISTINCT FROM 'verified' "
        "AND coalesce(x.locked_until < pg_catalog.now(), true) "
        "AND pg_catalog.to_date(pg_catalog.right(c.relname, 6), 'YYYYMM') + interval '1 month' + %(hot)s::interval "
        "<= pg_catalog.now() AT TIME ZONE 'UTC' ORDER BY c.relname LIMIT 1000",
        {"source": archive.source, "parent": archive.archived.as_string(conn), "hot": str(hot)},
    )
    key = await read_primary_key(conn, archive)
    periods = []
    for relation, expected, part, state in found:
        starts_on = date(int(relation[-6:-2]), int(relation[-2:]), 1)
        number = 1 if part is None else part + (state == "dropped")
        periods.append(
            Period(
                archive.source,
                starts_on,
                month_after(starts_on),
                number,
                # Not the table of all months: an export would keep a new month from being added to it.
                archive.month(starts_on).as_string(conn),
                archive.at,
                expected if expected >= 0 else None,
                key,
            )
        )
    return periods


async def drop_month(conn: Connection, archive: Archive, verified: Export) -> Literal["dropped", "changed", "kept"]:
    """Drop a verified month if it still has as many rows as its file, and record it in the same transaction.

    Were it recorded later, a row that arrives in between would make a new month of the same name, and the file would be
    replaced. Return "changed" if the month is to be exported anew, and "kept" if another transaction uses it now.
    """
    part = archive.month(verified.starts_on)
    try:
        async with months_of_utc(conn):
            exists = await fetch(conn, "SELECT pg_catalog.to_regclass(%s)", [part.as_string(conn)])
            if exists[0][0] is not None:
                # No row comes or goes while they are counted, and readers are not kept waiting.
                await conn.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(part))
                ((found,),) = await fetch(conn, sql.SQL("SELECT count(*) FROM {}").format(part))
                if found != (verified.rows or 0):
                    await run(conn, export_again(verified, _CHANGED))
                    return "changed"
                await conn.execute(sql.SQL("DROP TABLE {}").format(part))
            if await run(conn, record_dropped(verified)):
                return "dropped"
            # Another process has changed the record since.
            raise psycopg.Rollback
    except (errors.LockNotAvailable, errors.DeadlockDetected):
        pass
    return "kept"
