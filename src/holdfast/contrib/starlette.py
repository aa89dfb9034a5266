"""Starlette: the lifespan, access to the application from a request, and waiting while the client is connected."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._model.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import HTTPConnection, Request

    from holdfast._app.app import Holdfast

__all__ = ["holdfast_of", "lifespan", "while_connected"]

T = TypeVar("T")


def lifespan(app: Holdfast, **options: Any) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """Return a lifespan that sets `request.state.holdfast`, and runs a worker if HOLDFAST_WORKER_ENABLED is true.

    `options` are those of `app.embedded_worker`.
    """

    @asynccontextmanager
    async def run(_web: object) -> AsyncGenerator[dict[str, Any], None]:
        async with app.embedded_worker(**options):
            yield {"holdfast": app}

    return run


def holdfast_of(connection: HTTPConnection) -> Holdfast:
    """Return the Holdfast application of this request."""
    found: Holdfast | None = getattr(connection.state, "holdfast", None)
    if found is None:
        raise HoldfastError(
            "the state of this request has no Holdfast: give the web application lifespan=lifespan(app), or let its "
            "own yield what that yields; a TestClient runs it in a `with` block"
        )
    return found


async def while_connected(request: Request, waiting: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine such as `app.wait(handle)`, and cancel it at once when the client of the request disconnects.

    Raises Starlette's `ClientDisconnect` in that case. A server does not stop an endpoint whose client is gone, so it
    would wait to the end for nothing. Read the body of the request before, if it has one.
    """
    from starlette.requests import ClientDisconnect

    wait = asyncio.create_task(waiting)
    gone = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({wait, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not wait.done():
            raise ClientDisconnect
        return wait.result()
    finally:
        for task in (wait, gone):
            task.cancel()
        await asyncio.gather(wait, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
