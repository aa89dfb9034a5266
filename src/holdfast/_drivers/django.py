"""The driver for Django: `django.db.connection`, or one of `django.db.connections`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import atomic
from django.utils.connection import ConnectionProxy

from holdfast._model.connection import USE_SYNC
from holdfast._model.errors import UnsupportedConnection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._store.statement import Row, Statement


async def fetch(conn: object, statement: Statement[Any]) -> Sequence[Row]:  # noqa: ARG001 - all drivers share it
    raise UnsupportedConnection(f"Django's connections are sync: {USE_SYNC}, if need be in sync_to_async")


def fetch_sync(conn: Any, statement: Statement[Any]) -> Sequence[Row]:
    if not isinstance(conn, BaseDatabaseWrapper | ConnectionProxy):
        raise UnsupportedConnection(f"Django's {type(conn).__qualname__} is no connection: give django.db.connection")
    if conn.vendor != "postgresql":
        raise UnsupportedConnection(f"this Django connection is to {conn.vendor}, and Holdfast needs PostgreSQL")
    with conn.cursor() as cursor:
        cursor.execute(statement.sql, dict(statement.params))
        rows: list[Row] = cursor.fetchall()
        return rows


def outside_transaction(conn: Any) -> str | None:
    """Return what to write if a statement on this connection commits by itself; None if it does not."""
    if not isinstance(conn, BaseDatabaseWrapper | ConnectionProxy) or conn.in_atomic_block:
        return None
    # Not `get_autocommit()`, which would connect.
    commits = conn.settings_dict.get("AUTOCOMMIT", True) if conn.connection is None else conn.autocommit
    return "`with transaction.atomic():`" if commits else None


def transaction(conn: Any) -> Any:
    """Return a transaction on this connection, as a context manager."""
    return atomic(using=conn.alias)
