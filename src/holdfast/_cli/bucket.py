"""The bucket of the archive, for commands: where it is, whether it answers, and which files are in it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from holdfast._archive.location import ArchiveError, Location, translated
from holdfast._cli import session
from holdfast._cli.session import CommandError
from holdfast._model.settings import Settings
from holdfast._store.archive import FAMILIES, archive_totals, list_exports

if TYPE_CHECKING:
    from datetime import date
    from typing import Any

    import psycopg

    from holdfast._store.archive import Export

NO_BUCKET = "off, no bucket is set (HOLDFAST_ARCHIVE_BUCKET)"
LIBRARIES = ("obstore", "pyarrow")
# Periods that a command reads at most: twenty years of every family.
MOST = 50_000
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
# An object that does not exist.
_PROBE = "holdfast-check"
_PROBE_SECONDS = 10.0


def find() -> Location:
    """Return where the archive is, or raise CommandError if no bucket is set or a library is missing."""
    location = Location.of(Settings.load(os.environ))
    if location is None:
        example = "a bucket's name, or an address such as s3://acme/history or file:///var/lib/history"
        raise CommandError(f"the archive is {NO_BUCKET}: set it to {example}")
    session.require("archive", *LIBRARIES)
    return location


def answer(location: Location) -> str | None:
    """Ask for an object that does not exist. Return why that failed, or None if the bucket answers."""
    if location.address.startswith("file:"):
        folder = Path(url2pathname(urlsplit(location.address).path))
        # Opening it would create it.
        return None if folder.is_dir() and os.access(folder, os.W_OK) else _no_folder(folder)
    try:
        session.run_async(_ask(location))
    except TimeoutError:
        return f"no answer within {_PROBE_SECONDS:g} seconds: correct HOLDFAST_ARCHIVE_ENDPOINT"
    except ArchiveError as exc:
        return None if isinstance(exc.__cause__, FileNotFoundError) else str(exc)
    return None


def _no_folder(folder: Path) -> str | None:
    above = next(parent for parent in folder.parents if parent.exists())
    if not folder.exists() and os.access(above, os.W_OK):
        return None
    return f"this user may not write to {folder}"


async def _ask(location: Location) -> None:
    import obstore

    with translated():
        async with asyncio.timeout(_PROBE_SECONDS):
            await obstore.head_async(location.open(), _PROBE)


def check_source(conn: psycopg.Connection[Any], source: str) -> None:
    """Raise CommandError if nothing with this name is archived."""
    known = [*FAMILIES]
    known += [total.source for total in session.run(conn, archive_totals()) if total.source not in known]
    if source not in known:
        raise CommandError(f"SOURCE: nothing is archived as {source}: {session.meant(source, known)}", status=2)


def whole_files(conn: psycopg.Connection[Any], source: str | None, day: date | None) -> list[Export]:
    """Return the verified files with rows, newest first, also those whose days were dropped. None: all of them."""
    return [
        export
        for export in session.run(conn, list_exports(source=source, limit=MOST))
        if export.state in {"verified", "dropped"} and (day is None or export.starts_on <= day < export.ends_on)
    ]


def period(export: Any) -> str:
    """Return the day or the month of a period, with its part unless it is the first."""
    text = f"{export.starts_on:%Y-%m-%d}" if export.source in FAMILIES else f"{export.starts_on:%Y-%m}"
    return text if export.part == 1 else f"{text} part {export.part}"


def size(number: int | None) -> str | None:
    """Return a number of bytes for people.

    >>> size(900), size(1_234_567), size(None)
    ('900 B', '1.2 MiB', None)
    """
    if number is None:
        return None
    amount, unit = float(number), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    return f"{amount:.0f} B" if not unit else f"{amount:.1f} {_UNITS[unit]}"
