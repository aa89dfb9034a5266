"""The inbox for synchronous connections: `with inbox.sync.once(conn, message.id, "billing") as fresh: …`."""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from holdfast._drivers import run_sync
from holdfast._model.connection import SyncConnection
from holdfast._store.subscription import own_transaction
from holdfast.inbox._receipt import check_receipt, receive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["consumer", "once"]

S = TypeVar("S", bound=SyncConnection)
M = TypeVar("M")
P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def once(conn: SyncConnection, message_id: str, consumer: str) -> Iterator[bool]:
    """Yield whether the message is new to this consumer. See `holdfast.inbox.once`."""
    check_receipt(message_id, consumer)
    own = run_sync(conn, own_transaction())
    yield run_sync(conn, receive(message_id, consumer, xid=own))


@overload
def consumer(
    name: str,
) -> Callable[[Callable[Concatenate[S, str, P], R]], Callable[Concatenate[S, str, P], R | None]]: ...
@overload
def consumer(
    name: str, *, id_of: Callable[[M], str]
) -> Callable[[Callable[Concatenate[S, M, P], R]], Callable[Concatenate[S, M, P], R | None]]: ...
def consumer(name: str, *, id_of: Callable[[Any], str] = str) -> Callable[[Any], Any]:
    """Decorate a plain function so that it runs once per message. See `holdfast.inbox.consumer`."""

    def decorate(handle: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(handle)
        def handle_once(conn: SyncConnection, message: Any, *args: Any, **kwargs: Any) -> Any:
            with once(conn, id_of(message), name) as fresh:
                return handle(conn, message, *args, **kwargs) if fresh else None

        return handle_once

    return decorate
