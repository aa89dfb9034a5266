"""Later versions of the library, made by the lab: those of today with one additive migration more each."""

from __future__ import annotations

import os
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from holdfast._store import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from holdfast._store.schema import Migration

TODAY = schema.migrations()
VARIABLE = "CHAOS_VERSION"
"""How many migrations a replica's code has more than that of today."""


@cache
def migrations(version: int) -> tuple[Migration, ...]:
    """Return what the code of a later version is made of."""
    known = [(f"{migration.name}.sql", migration.sql) for migration in TODAY]
    return schema.numbered(known + list(_additions(version)))


def _additions(version: int) -> Iterator[tuple[str, str]]:
    text = files("labs.chaos").joinpath("upgrade.sql").read_text("utf-8")
    for number in range(len(TODAY) + 1, len(TODAY) + 1 + version):
        yield f"{number:04}_spare.sql", text.replace("{number}", str(number))


def adopt(version: int) -> None:
    """Let this process have the code of that version."""
    schema.migrations = lambda: migrations(version)  # type: ignore[assignment]


def adopt_named() -> None:
    """Let this process have the code that its environment names."""
    if version := os.environ.get(VARIABLE):
        adopt(int(version))


def migrate(conn: psycopg.Connection[Any], version: int) -> list[str]:
    """Migrate as the code of that version does."""
    known = schema.migrations
    adopt(version)
    try:
        return schema.migrate(conn)
    finally:
        schema.migrations = known
