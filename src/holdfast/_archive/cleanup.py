"""Drops days and months that are verified in the archive and whose retention has ended, and nothing else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast._archive.months import drop_month
from holdfast._drivers import run
from holdfast._logs.log import Log
from holdfast._store.archive import droppable_days, droppable_months, export_again

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from obstore.store import ObjectStore

    from holdfast._archive.location import Location
    from holdfast._archive.tables import Archive
    from holdfast._store.archive import DroppableDay, Export

log = Log(__name__)

# Days that one query returns.
_MOST = 100
# Detaching waits for readers. It is given up after this many seconds, and finished in the next tick.
DETACH_SECONDS = 5.0
# The drop itself counts the rows, which may take a while and blocks no job. Its locks have their own limit.
DROP_SECONDS = 600.0
# A short lock is tried this often, with a pause in between, so that finished jobs get through.
_TRIES = 20
_PAUSE = 0.1
_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


async def drop_days(
    conn: psycopg.AsyncConnection[Any],
    location: Location,
    *,
    on_dropped: Callable[[str], None],
    stopped: Callable[[], bool],
) -> None:
    """Drop every day whose time has come. `conn`: in autocommit mode.

    `on_dropped`: called with "dropped", "changed", "incomplete" or "kept" for each. `stopped()`: whether to leave the
    rest.
    """
    seen: set[tuple[str, date, int]] = set()
    while found := [day for day in await run(conn, droppable_days(limit=_MOST + len(seen))) if day[:3] not in seen]:
        store = location.open()
        for day in found:
            if stopped():
                return
            fault = await file_fault(store, day)
            if fault is None:
                end = await _drop(conn, day)
            else:
                end = "changed" if await run(conn, export_again(day, fault)) else "incomplete"
            _warn(end, day, fault)
            on_dropped(end)
            seen.add(day[:3])


async def file_fault(store: ObjectStore, file: DroppableDay | Export) -> str | None:
    """Return why a file is not what was verified, by its size and tag; None when it is."""
    import obstore

    from holdfast._archive.location import ArchiveError, is_missing, translated

    if file.object is None:
        return None
    try:
        with translated():
            found = await obstore.head_async(store, file.object)
    except ArchiveError as exc:
        if isinstance(exc.__cause__, Exception) and is_missing(exc.__cause__):
            return f"{file.object} is no longer in the bucket"
        raise
    if found["size"] != file.bytes or (file.etag and found.get("e_tag") != file.etag):
        return f"{file.object} was changed after it was verified"
    return None


async def _drop(conn: psycopg.AsyncConnection[Any], day: DroppableDay) -> str:
    answer = "kept"
    for command in day.commands:
        seconds = DETACH_SECONDS if command.startswith("ALTER") else DROP_SECONDS
        for _ in range(_TRIES):
            try:
                async with asyncio.timeout(seconds):
                    found = await conn.execute(command.encode())
                    answer = (await found.fetchone() or ("kept",))[0] if found.description else answer
                break
            except _BUSY:
                await asyncio.sleep(_PAUSE)
            except (TimeoutError, psycopg.errors.ObjectNotInPrerequisiteState) as exc:
                extra = {"source": day.source, "day": day.starts_on.isoformat(), "error": type(exc).__name__}
                log.info("a day could not be dropped yet", extra=extra)
                return "kept"
        else:
            return "kept"
    return str(answer)


async def drop_months(
    conn: psycopg.AsyncConnection[Any],
    location: Location,
    archives: Sequence[Archive],
    *,
    on_dropped: Callable[[str], None],
    stopped: Callable[[], bool],
) -> None:
    """Drop every month of the application's tables whose time has come, as `drop_days` does with days."""
    for archive in archives:
        for month in await run(conn, droppable_months(archive.source, limit=_MOST)):
            if stopped():
                return
            fault = await file_fault(location.open(), month)
            end = await drop_month(conn, archive, month, fault)
            _warn(end, month, fault)
            on_dropped(end)


def _warn(end: str, period: DroppableDay | Export, fault: str | None) -> None:
    extra = {"source": period.source, "starts_on": period.starts_on.isoformat(), "reason": fault}
    if end == "changed":
        log.warning("a period is kept, and exported anew", extra=extra)
    elif end == "incomplete":
        log.warning(
            "a period has fewer rows than its file: both are kept, see `holdfast archive` for what to do", extra=extra
        )
