"""What a worker knows of its own health, without asking anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from holdfast.engine.keeper import LoopVitals


class Vitals(NamedTuple):
    """One database as a worker serves it; ages in seconds, None while the database has never answered."""

    database: str
    beat: float | None = None
    """Since the last heartbeat that was answered."""
    reap: float | None = None
    """Since the last pass of the reaper."""
    unwritten: float = 0.0
    """For how long endings have waited while none was written; 0 when none waits."""
    loops: tuple[LoopVitals, ...] = ()
    """The loops and threads that serve it."""


def database_of(url: str) -> str:
    """Return the name alone: an address may carry a password."""
    try:
        return str(conninfo_to_dict(url).get("dbname") or "")
    except psycopg.ProgrammingError:
        return ""
