"""Django's migrations of the schema; each is the operation `BringUpToDate`."""

from __future__ import annotations

from typing import Any

from django.db.migrations import RunPython

from holdfast._store import schema


class BringUpToDate(RunPython):
    """Runs `holdfast migrate` on every PostgreSQL database that Django migrates.

    Reversing it keeps the schema, because it contains jobs.
    """

    def __init__(self, newest: str) -> None:
        """`newest`: the newest Holdfast migration when this one was written."""
        self.newest = newest
        super().__init__(_migrate, RunPython.noop, atomic=False)


def _migrate(_apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        editor.connection.ensure_connection()
        schema.migrate(editor.connection.connection)
