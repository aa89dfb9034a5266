"""A small OpenID Connect provider and a proxy that signs people in there, as oauth2-proxy does."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import httpx
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from tests.kit.issuer import Issuer

CLIENT, SECRET = "holdfast", secrets.token_hex(16)
COOKIE = "_oauth2_proxy"
SENT_ON = {"content-type", "origin", "sec-fetch-site", "x-holdfast-csrf"}
"""The headers of a browser that are sent on. Those in which a proxy names the person are not."""


def provider(issuer: Issuer, claims: dict[str, Any]) -> Starlette:
    """Return a provider at which the person with these claims is signed in already."""
    codes: set[str] = set()

    async def authorize(request: Request) -> Response:
        codes.add(code := secrets.token_hex(8))
        asked = request.query_params
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}")

    async def token(request: Request) -> Response:
        given = await request.json()
        if given.get("client_secret") != SECRET or given.get("code") not in codes:
            return JSONResponse({"error": "invalid_grant"}, 400)
        codes.remove(given["code"])
        return JSONResponse({"id_token": issuer.token(**claims)})

    return Starlette(routes=[Route("/authorize", authorize), Route("/token", token, methods=["POST"])])


def proxy(issuer: str, upstream: str) -> Starlette:
    """Return a proxy that sends on only what signed-in people ask, with their ID token."""
    sessions: dict[str, str] = {}
    states: set[str] = set()
    client = httpx.AsyncClient(trust_env=False, timeout=30)

    async def callback(request: Request) -> Response:
        given = request.query_params
        if given.get("state") not in states:
            return Response("unknown state", 403)
        states.remove(given["state"])
        answer = await client.post(f"{issuer}/token", json={"client_secret": SECRET, "code": given.get("code")})
        if answer.status_code != 200:
            return Response("not signed in", 403)
        sessions[session := secrets.token_hex(16)] = answer.json()["id_token"]
        response = RedirectResponse("/")
        response.set_cookie(COOKIE, session, httponly=True, samesite="lax")
        return response

    async def send_on(request: Request) -> Response:
        token = sessions.get(request.cookies.get(COOKIE, ""))
        if token is None:
            states.add(state := secrets.token_hex(8))
            back = {"client_id": CLIENT, "state": state, "redirect_uri": f"{request.base_url}oauth2/callback"}
            return RedirectResponse(f"{issuer}/authorize?{urlencode(back)}")
        headers = {name: value for name, value in request.headers.items() if name in SENT_ON}
        answer = await client.request(
            request.method,
            f"{upstream}{request.url.path}",
            params=request.query_params,
            content=await request.body(),
            headers=headers | {"authorization": f"Bearer {token}", "host": request.headers["host"]},
        )
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))

    methods = ["GET", "POST", "PUT", "DELETE"]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    routes = [Route("/oauth2/callback", callback), Route("/{path:path}", send_on, methods=methods)]
    return Starlette(routes=routes, lifespan=lifespan)
