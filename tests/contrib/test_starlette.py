from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from holdfast import Holdfast
from holdfast._model.errors import HoldfastError
from holdfast.contrib.starlette import holdfast_of, while_connected
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

SECONDS = 30


def test_a_request_leads_to_the_application() -> None:
    app = Holdfast()
    assert holdfast_of(Request({"type": "http", "state": {"holdfast": app}})) is app


def test_without_the_lifespan_it_says_what_is_missing() -> None:
    with pytest.raises(HoldfastError, match=r"lifespan=lifespan\(app\)"):
        holdfast_of(Request({"type": "http"}))


@asynccontextmanager
async def served(endpoint: Callable[[Request], Awaitable[Response]]) -> AsyncIterator[int]:
    """Serve one endpoint by uvicorn; yield the port."""
    site = Starlette(routes=[Route("/", endpoint, methods=["GET", "POST"])])
    server = uvicorn.Server(uvicorn.Config(site, port=0, log_level="error", ws="none"))
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving


async def asked(port: int, body: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
    writer.write(body)
    return reader, writer


async def test_a_wait_ends_when_the_client_disconnects() -> None:
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async def endpoint(request: Request) -> Response:
        with pytest.raises(ClientDisconnect):
            await while_connected(request, wait())
        return Response(status_code=499)

    async with asyncio.timeout(SECONDS), served(endpoint) as port:
        _, writer = await asked(port)
        await waiting.wait()
        assert not ended.is_set()
        writer.close()
        await ended.wait()


async def test_a_wait_whose_client_stays_returns_or_raises_as_it_would_without() -> None:
    async def endpoint(request: Request) -> Response:
        body = await request.body()
        try:
            return PlainTextResponse(await while_connected(request, answer(body.decode())))
        except LookupError as error:
            return PlainTextResponse(str(error), status_code=404)

    async def answer(body: str) -> str:
        if not body:
            raise LookupError("nothing was asked")
        await asyncio.sleep(0)
        return f"{body} it is"

    async with asyncio.timeout(SECONDS), served(endpoint) as port:
        for body, status, text in ((b"seven", b"200", b"seven it is"), (b"", b"404", b"nothing was asked")):
            reader, writer = await asked(port, body)
            response = await reader.read()
            writer.close()
            assert (response.split()[1], response.rpartition(b"\r\n")[2]) == (status, text)
