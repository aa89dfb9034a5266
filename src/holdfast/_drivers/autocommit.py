"""Runs statements that should commit with the caller's data, and warns where they commit by themselves."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._drivers import outside_transaction, run, run_sync
from holdfast._model.call import callers_frame
from holdfast._model.errors import AutocommitWarning

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from holdfast._drivers import AsyncConnection, SyncConnection
    from holdfast._store.statement import Statement

T = TypeVar("T")

_MESSAGE = (
    "this connection commits by itself, so what you enqueue or publish on it does not commit with your data: write "
    "{}, and use the connection inside. To silence this: "
    'warnings.filterwarnings("ignore", category=holdfast.AutocommitWarning)'
)


def run_joined(conn: AsyncConnection, statement: Statement[T]) -> Coroutine[Any, Any, T]:
    """Run a statement in the transaction of an asynchronous connection; warn if there is none."""
    _warn(conn)
    return run(conn, statement)


def run_joined_sync(conn: SyncConnection, statement: Statement[T]) -> T:
    """Run a statement in the transaction of a synchronous connection; warn if there is none."""
    _warn(conn)
    return run_sync(conn, statement)


def _warn(conn: object) -> None:
    """Warn once for each line of the application, as Python does with warnings by default."""
    if (cure := outside_transaction(conn)) is not None and (frame := callers_frame()) is not None:
        warnings.warn_explicit(
            _MESSAGE.format(cure),
            AutocommitWarning,
            frame.f_code.co_filename,
            frame.f_lineno,
            module=frame.f_globals.get("__name__"),
            registry=frame.f_globals.setdefault("__warningregistry__", {}),
        )
