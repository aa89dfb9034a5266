"""The inbox: each message takes effect once, even if it is delivered twice.

    async with conn.transaction(), inbox.once(conn, message.id, "billing") as fresh:
        if fresh:
            await conn.execute(...)

The receipt of a message is stored in the transaction that processes it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from holdfast._drivers import run, run_sync
from holdfast._model.connection import AsyncConnection, SyncConnection
from holdfast._model.errors import InvalidEvent, InvalidJob, NoTransaction
from holdfast._model.new_job import KEY_LIMIT, check_text
from holdfast._store.event import CONSUMER_LIMIT, receive_message
from holdfast._store.subscription import own_transaction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

__all__ = ["consumer", "consumer_sync", "once", "once_sync"]

A = TypeVar("A", bound=AsyncConnection)
S = TypeVar("S", bound=SyncConnection)
M = TypeVar("M")
P = ParamSpec("P")
R = TypeVar("R")


@asynccontextmanager
async def once(conn: AsyncConnection, message_id: str, consumer: str) -> AsyncIterator[bool]:
    """Yield whether the message is new to this consumer; it counts as processed when the transaction of `conn` commits.

    A concurrent delivery of the same message waits until the first transaction ends; if that rolls back, it processes
    the message. READ COMMITTED only. An exception in the block must roll the transaction back, or the message counts as
    processed.
    """
    _check(message_id, consumer)
    own = await run(conn, own_transaction())
    yield _fresh(await run(conn, receive_message(consumer, message_id, xid=own)))


@contextmanager
def once_sync(conn: SyncConnection, message_id: str, consumer: str) -> Iterator[bool]:
    """Yield whether the message is new, on a synchronous connection. See `once`."""
    _check(message_id, consumer)
    own = run_sync(conn, own_transaction())
    yield _fresh(run_sync(conn, receive_message(consumer, message_id, xid=own)))


@overload
def consumer(
    name: str,
) -> Callable[
    [Callable[Concatenate[A, str, P], Coroutine[Any, Any, R]]],
    Callable[Concatenate[A, str, P], Coroutine[Any, Any, R | None]],
]: ...
@overload
def consumer(
    name: str, *, id_of: Callable[[M], str]
) -> Callable[
    [Callable[Concatenate[A, M, P], Coroutine[Any, Any, R]]],
    Callable[Concatenate[A, M, P], Coroutine[Any, Any, R | None]],
]: ...
def consumer(name: str, *, id_of: Callable[[Any], str] = str) -> Callable[[Any], Any]:
    """Decorate a function of a connection and a message id so that it runs once per message; repeats return None.

    `id_of`: returns the id when the function takes the message itself. Default: `str`.
    """

    def decorate(handle: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
        @wraps(handle)
        async def handle_once(conn: AsyncConnection, message: Any, *args: Any, **kwargs: Any) -> Any:
            async with once(conn, id_of(message), name) as fresh:
                return await handle(conn, message, *args, **kwargs) if fresh else None

        return handle_once

    return decorate


@overload
def consumer_sync(
    name: str,
) -> Callable[[Callable[Concatenate[S, str, P], R]], Callable[Concatenate[S, str, P], R | None]]: ...
@overload
def consumer_sync(
    name: str, *, id_of: Callable[[M], str]
) -> Callable[[Callable[Concatenate[S, M, P], R]], Callable[Concatenate[S, M, P], R | None]]: ...
def consumer_sync(name: str, *, id_of: Callable[[Any], str] = str) -> Callable[[Any], Any]:
    """Decorate a plain function on a synchronous connection. See `consumer`."""

    def decorate(handle: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(handle)
        def handle_once(conn: SyncConnection, message: Any, *args: Any, **kwargs: Any) -> Any:
            with once_sync(conn, id_of(message), name) as fresh:
                return handle(conn, message, *args, **kwargs) if fresh else None

        return handle_once

    return decorate


def _check(message_id: str, consumer: str) -> None:
    try:
        check_text("message_id", message_id, KEY_LIMIT)
        check_text("consumer", consumer, CONSUMER_LIMIT)
    except InvalidJob as exc:
        raise InvalidEvent(str(exc)) from None


def _fresh(received: bool | None) -> bool:  # noqa: FBT001 - a result
    if received is None:
        raise NoTransaction
    return received
