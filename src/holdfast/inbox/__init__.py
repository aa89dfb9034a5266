"""The inbox: each message takes effect once, even if it is delivered twice.

    async with conn.transaction(), inbox.once(conn, message.id, "billing") as fresh:
        if fresh:
            await conn.execute(...)

The receipt of a message is stored in the transaction that processes it. `inbox.sync` has the same names for synchronous
connections.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from holdfast._drivers import run
from holdfast._model.connection import AsyncConnection
from holdfast._store.subscription import own_transaction
from holdfast.inbox import sync
from holdfast.inbox._receipt import check_receipt, receive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

__all__ = ["consumer", "once", "sync"]

A = TypeVar("A", bound=AsyncConnection)
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
    check_receipt(message_id, consumer)
    own = await run(conn, own_transaction())
    yield await run(conn, receive(message_id, consumer, xid=own))


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
