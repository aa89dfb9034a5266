"""Builds the runners of the archive: here the archive and the engine meet, neither of which knows the other."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast._archive.location import Location
from holdfast._archive.runners import CLEANUP, EXPORT, ArchiveRunners
from holdfast._distribution import require
from holdfast._engine.address import connect
from holdfast._engine.runner import Runner
from holdfast._model.schedule import InvalidSchedule, parse
from holdfast._model.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    import psycopg

    from holdfast._archive.tables import Archive
    from holdfast._model.schedule import Schedule
    from holdfast._model.settings import Settings

# A first export has all days that there are, and a move all rows that are old. Both go on where they were stopped: a
# move with the next rows, an export with the day that was not finished.
LONGEST = timedelta(hours=6)


def archive_runners(settings: Settings, archives: Sequence[Archive]) -> Callable[[str], Sequence[Runner]]:
    """Return a function that makes the runners for the database of a URL.

    Without a bucket there is no export, and `cleanup` only moves rows. Raises ImportError if a library is missing, and
    SettingsError for a wrong schedule.
    """
    location = Location.of(settings)
    if location is not None:
        for library in ("obstore", "pyarrow"):
            require("the archive", "archive", library)
    cleanup_at, export_at = _schedule(settings, "cleanup_cron"), _schedule(settings, "archive_export_cron")

    def make(url: str) -> list[Runner]:
        @asynccontextmanager
        async def connected() -> AsyncIterator[psycopg.AsyncConnection[Any]]:
            conn = await connect(url)
            try:
                yield conn
            finally:
                await conn.close()

        ticks = ArchiveRunners(url, connected, location=location, archives=archives)
        options: dict[str, Any] = {"singleton": True, "max_runtime": LONGEST}
        cleanup = Runner(CLEANUP, ticks.cleanup, every=cleanup_at, **options)
        # An export that is stopped begins anew, while `cleanup` goes on where it was.
        export = Runner(EXPORT, ticks.export, every=export_at, whole_tick=True, **options)
        return [cleanup] if location is None else [cleanup, export]

    return make


def _schedule(settings: Settings, name: str) -> Schedule:
    try:
        return parse(getattr(settings, name))
    except InvalidSchedule as exc:
        raise SettingsError([f"{settings.label(name)}: {exc}"]) from exc
