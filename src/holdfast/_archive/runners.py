"""The ticks of two runners: `cleanup` drops and moves what is old, `archiveExport` writes it to the object store."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast._archive import moving
from holdfast._archive.cleanup import drop_days, drop_months
from holdfast._archive.export import Exporter, ExportTaken
from holdfast._archive.incomplete import Incomplete
from holdfast._archive.location import ArchiveError
from holdfast._archive.months import closed_months
from holdfast._archive.tables import CalendarSpan
from holdfast._drivers import run
from holdfast._logs.failure import Failure
from holdfast._logs.log import Log
from holdfast._model.errors import HoldfastError
from holdfast._store.archive import closed_days, set_archived

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from holdfast._archive.location import Location
    from holdfast._archive.tables import Archive
    from holdfast._engine.runner import Tick
    from holdfast._store.archive import Period


log = Log(__name__)

CLEANUP, EXPORT = "cleanup", "archiveExport"
# Periods that one query returns.
_MOST = 100
# After so many failures in a row the rest is left to the next tick: the object store may be down.
_FAILURES = 3
_DAY_MS = 86_400_000
_DAYS = {"day": 1, "month": 30, "year": 365}


class ArchiveRunners:
    """The ticks of one database."""

    def __init__(
        self,
        url: str,
        connect: Callable[[], AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]],
        *,
        location: Location | None,
        archives: Sequence[Archive] = (),
        background: bool = True,
    ) -> None:
        """`connect()`: opens a connection in autocommit mode. `location`: None when no bucket is set.

        `background`: whether exports use only processor time that no other process wants. Default: True.
        """
        self._url = url
        self._connect = connect
        self._location = location
        self._archives = archives
        self._background = background

    async def cleanup(self, tick: Tick) -> Mapping[str, int]:
        """Drop days and months that are verified, then move old rows of the application's tables.

        Moving comes last, since it may take all the time that a tick has. A table that does not fit its declaration
        does not stop the others.
        """

        def stopped() -> bool:
            return tick.budget.over or tick.signal.aborted

        def dropped(end: str) -> None:
            tick.count(f"periods_{end}")

        broken: list[ArchiveError] = []
        async with self._connect() as conn:
            if self._location is not None:
                await drop_days(conn, self._location, on_dropped=dropped, stopped=stopped)
                await drop_months(conn, self._location, self._archives, on_dropped=dropped, stopped=stopped)
            for archive in await moving.order(conn, self._archives):
                try:
                    await moving.move(conn, archive, on_moved=partial(tick.count, "rows_moved"), stopped=stopped)
                except psycopg.errors.LockNotAvailable:
                    extra = {"source": archive.source}
                    log.info("another transaction has locked a table: its rows are moved later", extra=extra)
                except ArchiveError as exc:
                    broken.append(exc)
        if broken:
            raise ArchiveError("; ".join(map(str, broken)))
        return tick.counts

    async def export(self, tick: Tick) -> Mapping[str, int]:
        """Export closed days and months, oldest first. One that fails does not stop the others, three in a row do.

        An incomplete one does not count: it fails once, and is then left to a person.
        From then on days are kept until they are archived: this worker may run no other runner that has them kept.
        """
        if self._location is None:
            return {}
        broken: list[tuple[Period, Exception]] = []
        failures = 0
        async with (
            self._connect() as conn,
            Exporter(conn, self._url, self._location, background=self._background) as exporter,
        ):
            await run(conn, set_archived(archived=True))
            async for period, keep_ms in self.periods(conn):
                if tick.budget.over or tick.signal.aborted:
                    break
                try:
                    upload = await exporter.export(period, keep_ms=keep_ms)
                except ExportTaken:
                    continue
                except Exception as exc:
                    if conn.closed or conn.broken:
                        raise
                    extra = {"source": period.source, "starts_on": period.starts_on.isoformat()}
                    log.warning("an export failed, and is tried again", extra=extra, exc_info=exc)
                    broken.append((period, exc))
                    failures += not isinstance(exc, Incomplete)
                    if failures == _FAILURES:
                        break
                else:
                    failures = 0
                    tick.count("periods_exported")
                    tick.count("rows_exported", upload.rows)
                    tick.count("bytes_exported", upload.bytes)
        if broken:
            reasons = "; ".join(f"{p.source} of {p.starts_on}: {Failure.of(exc).text}" for p, exc in broken[:5])
            raise HoldfastError(f"{len(broken)} exports failed: {reasons}")
        return tick.counts

    async def periods(self, conn: psycopg.AsyncConnection[Any]) -> AsyncIterator[tuple[Period, int | None]]:
        """Yield what is to be exported, each with how long a month is kept afterwards, in milliseconds."""
        seen: set[Period] = set()
        while found := [day for day in await run(conn, closed_days(limit=_MOST + len(seen))) if day not in seen]:
            for period in found:
                yield period, None
            seen.update(found)
        for archive in self._archives:
            keep = CalendarSpan.parse("keep", archive.keep)
            for period in await closed_months(conn, archive):
                yield period, keep.number * _DAYS[keep.unit] * _DAY_MS
