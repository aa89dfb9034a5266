"""A period with fewer rows in the database than in its file: both are kept until a person decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._archive.location import ArchiveError
from holdfast._store.archive import FAMILIES

if TYPE_CHECKING:
    from datetime import date


class Incomplete(ArchiveError):  # noqa: N818 - names describe what happened
    """The database has fewer rows of a period than its file in the bucket, so neither is replaced or dropped.

    Cure: If the rows were deleted on purpose, run `holdfast archive export SOURCE --day DAY`, which replaces the file.
    Otherwise insert them again: `holdfast archive restore` loads the file.
    """


def explain(source: str, starts_on: date, *, found: int, rows: int, fault: str | None = None) -> str:
    """Return what differs and what to do, as the SQL function `export_again` does for a day of history.

    `fault`: why the file is not trusted either.
    """
    monthly = source not in FAMILIES
    why = f"{found} rows are in the {'month' if monthly else 'day'}, and {rows} in its file"
    if fault is not None:
        why = f"{fault}, and {why}"
    app = " --app module:attribute" if monthly else ""
    return (
        f"{why}: both are kept. If the rows were deleted on purpose, replace the file with "
        f"`holdfast archive export {source} --day {starts_on}{app}`"
    )
