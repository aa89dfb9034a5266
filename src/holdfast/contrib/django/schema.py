"""The schema, in the hands of Django's migrations."""

from __future__ import annotations

from typing import Any

from django.db.migrations import RunPython

from holdfast.store import schema


class BringUpToDate(RunPython):
    """Does as `holdfast migrate` does, on every PostgreSQL that Django migrates.

    Undone, it leaves the schema where it is: there are jobs in it.
    """

    def __init__(self, newest: str) -> None:
        """`newest`: the migration of ours that this one was written for."""
        self.newest = newest
        super().__init__(_migrate, RunPython.noop, atomic=False)


def _migrate(_apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        editor.connection.ensure_connection()
        schema.migrate(editor.connection.connection)
