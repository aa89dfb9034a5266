"""The application of a Django site, Django's connections in a worker, and the schema as a migration of Django's."""

from __future__ import annotations

from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.migrations import RunPython
from django.utils.module_loading import import_string
from psycopg.pq import Conninfo

from holdfast._app.app import Holdfast
from holdfast._model.errors import UnsupportedConnection
from holdfast._store import schema

if TYPE_CHECKING:
    from collections.abc import Callable


_ADVICE = 'HOLDFAST_APP must be the dotted path of a Holdfast, e.g. "shop.jobs.app"'


def application() -> Holdfast:
    """Return the Holdfast application given by HOLDFAST_APP."""
    name = getattr(settings, "HOLDFAST_APP", None)
    found = import_string(name) if isinstance(name, str) else None
    if not isinstance(found, Holdfast):
        raise ImproperlyConfigured(f"{_ADVICE}, not {name!r}")
    return found


class FreshConnections:
    """Handles connections around a handler as Django does around a request: closes broken and old ones."""

    def __init__(self) -> None:
        self._running = 0
        """Running async handlers. They share a thread's connections, so usable ones are closed only around the last."""

    def __call__(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(handler)
        def run(*args: Any, **kwargs: Any) -> Any:
            _close_old_connections()
            try:
                return handler(*args, **kwargs)
            finally:
                _close_old_connections()

        @wraps(handler)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            self._running += 1
            try:
                await self._close()
                try:
                    return await handler(*args, **kwargs)
                finally:
                    await self._close()
            finally:
                self._running -= 1

        return run_async if iscoroutinefunction(handler) else run

    async def _close(self) -> None:
        """Close in the thread that holds the connections of the ORM and of the handler's `sync_to_async`."""
        await sync_to_async(_close_old_connections if self._running == 1 else _close_broken_connections)()


def _close_old_connections() -> None:
    """Close connections as Django's `close_old_connections` does, except those inside `atomic`.

    Django would close those, because autocommit is off there. In tests, handlers run inside `atomic`.
    """
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _close_broken_connections() -> None:
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:  # on Django 4.2, is_usable() raises without a connection
            continue
        connection.health_check_done = False  # type: ignore[attr-defined]  # missing in the stubs
        if connection.errors_occurred and not connection.in_atomic_block and not connection.is_usable():
            connection.close()


def address(alias: str) -> str:
    """Return the address of one of `settings.DATABASES`, as HOLDFAST_DATABASE_URL takes it."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise UnsupportedConnection(f"the database {alias} is {connection.vendor}, and Holdfast needs PostgreSQL")
    params: dict[str, Any] = connection.get_connection_params()
    if role := connection.settings_dict["OPTIONS"].get("assume_role"):
        params["options"] = f"{params.get('options', '')} -c role={role}".strip()
    # Drop the remaining parameters, which only Django's use of psycopg needs.
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    given = {name: value for name, value in params.items() if name in known and value is not None}
    return f"postgresql:///?{urlencode(given, quote_via=quote)}"


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
