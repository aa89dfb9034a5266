"""What a worker knows of its own health, without asking anybody."""

from __future__ import annotations

from typing import NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict


class Vitals(NamedTuple):
    """One database as a worker serves it; ages in seconds, None while the database has never answered."""

    database: str
    beat: float | None = None
    """Since the last heartbeat that was answered."""
    reap: float | None = None
    """Since the last pass of the reaper."""


def database_of(url: str) -> str:
    """Return the name alone: an address may carry a password."""
    try:
        return str(conninfo_to_dict(url).get("dbname") or "")
    except psycopg.ProgrammingError:
        return ""
