"""Refusals of a server that no retry changes: a wrong password, a database that does not exist."""

from __future__ import annotations

import re

import psycopg

from holdfast._engine.address import database_of
from holdfast._model.errors import DatabaseRefused

# Errors for a connection that the server will always refuse. libpq has no code for them, only the text; in languages
# other than English they count as temporary.
_REFUSED = re.compile(
    r'FATAL:\s+(?:(?:database|role) ".*" does not exist|password authentication failed'
    r'|role ".*" is not permitted to log in|no pg_hba\.conf entry|permission denied for database)'
)


def refusal(exc: BaseException) -> str | None:
    """Return the reason if a server refuses the connection permanently. None: a retry may help.

    A server that is down, starting, stopping or out of connections gives other errors.
    """
    if not isinstance(exc, psycopg.OperationalError) or not _REFUSED.search(text := str(exc)):
        return None
    return text.partition("FATAL:")[2].strip().splitlines()[0]


def refused(url: str, why: object) -> DatabaseRefused:
    """Return the error for a database that refuses the worker. `why`: the reason of the server."""
    return DatabaseRefused(f"{database_of(url)}: {why}. Correct the address of the database, or create what is missing")
