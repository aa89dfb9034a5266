"""A server that gives the same answer to every request, and keeps the headers of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request


class Answering(httpx.AsyncClient):
    """A client of such a server."""

    def __init__(self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        async def answer(request: Request) -> Response:
            self.seen.append(dict(request.headers))
            return Response(body, status, dict(headers or {}))

        self.seen: list[dict[str, str]] = []
        web = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])
        super().__init__(transport=httpx.ASGITransport(web))
