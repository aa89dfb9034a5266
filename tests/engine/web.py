"""A web application as an ASGI server sees it: the lifespan protocol, and one request that enqueues."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    Lifespan: TypeAlias = "Callable[[Web], AbstractAsyncContextManager[Any]]"
    Message: TypeAlias = dict[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]

SOON = 20.0


class Web:
    """Takes a lifespan as Starlette and FastAPI do: called with the application, and what it yields is a mapping."""

    def __init__(self, lifespan: Lifespan, on_request: Callable[[], Awaitable[None]]) -> None:
        self._lifespan = lifespan
        self._on_request = on_request

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._on_request()
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        assert (await receive())["type"] == "lifespan.startup"
        begun = False
        try:
            async with self._lifespan(self) as state:
                scope["state"].update(state or {})
                begun = True
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:
            await send({"type": f"lifespan.{'shutdown' if begun else 'startup'}.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})


class Served:
    """Runs an application's lifespan as a server does."""

    def __init__(self, web: Web) -> None:
        self._web = web

    async def request(self) -> int:
        sent: asyncio.Queue[Message] = asyncio.Queue()
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "asgi": {"version": "3.0"}}
        await self._web(scope, _nothing, sent.put)
        return int((await sent.get())["status"])


@asynccontextmanager
async def served(web: Web) -> AsyncGenerator[Served, None]:
    """Start the application, and stop it when the block is left; one that fails to start raises what it said."""
    incoming: asyncio.Queue[Message] = asyncio.Queue()
    outgoing: asyncio.Queue[Message] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}

    async def run() -> None:
        await web(scope, incoming.get, outgoing.put)

    task = asyncio.create_task(run())
    async with asyncio.timeout(SOON):
        await incoming.put({"type": "lifespan.startup"})
        answer = await outgoing.get()
        if answer["type"] != "lifespan.startup.complete":
            await asyncio.gather(task, return_exceptions=True)
            raise RuntimeError(answer["message"])
    try:
        yield Served(web)
    finally:
        async with asyncio.timeout(SOON):
            await incoming.put({"type": "lifespan.shutdown"})
            assert (await outgoing.get())["type"] == "lifespan.shutdown.complete"
            await task


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}
