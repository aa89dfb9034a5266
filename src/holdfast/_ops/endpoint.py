"""One path of the route table: reads and authorizes the request, and answers it."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers as StarletteHeaders
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from holdfast._logs.log import Log
from holdfast._ops.access import SAFE
from holdfast._ops.caller import Person, RequestRefused, Role
from holdfast._ops.idempotency import digest, key_of, once
from holdfast._ops.read_requests import check_framing, check_length, check_target, read_body, read_path, read_query
from holdfast._ops.responses.job import Refusal
from holdfast._ops.routes import BASE, Call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from holdfast._ops.routes import Operations, Route


log = Log(__name__)

ANONYMOUS = Person("anybody", Role.VIEWER)
_JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
_MESSAGES = {404: ("not_found", "Not found."), 405: ("wrong_method", "Only reading is allowed here.")}


class Endpoint:
    """The routes of one path, by method."""

    def __init__(self, operations: Operations, routes: Mapping[str, Route]) -> None:
        self._operations = operations
        self._routes = routes
        self._allow = ", ".join(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        route = self._routes.get(request.method)
        try:
            response = self._refused_method(scope) if route is None else await self._answer(request, route)
        except RequestRefused as exc:
            response = refusal(exc, scope)
        except ClientDisconnect:
            return
        except Exception:
            what = {"method": request.method, "route": route and route.path, "request_id": request_id(scope)}
            log.exception("a request failed", extra=what)
            response = refusal(
                RequestRefused(500, "internal", "This is a fault of the application; its log says which."), scope
            )
        await response(scope, receive, send)

    async def _answer(self, request: Request, route: Route) -> Response:
        check_length(request.headers.get("content-length"))
        operations = self._operations
        by = ANONYMOUS if route.role is None else await operations.access.allowed(request, route.role)
        path = read_path(request)
        database = operations.database(path.pop("database", None))
        call = Call(
            request=request,
            operations=operations,
            database=database,
            by=by,
            path=path,
            query=None if route.query is None else read_query(request, route.query),
            body=None if route.body is None else await read_body(request, route.body),
        )
        if route.role is None or route.limits_itself:
            return await _answered(route, call)
        # Login and logout have no role, so their answer with its cookie is never stored under an idempotency key.
        key = None if request.method in SAFE else key_of(request)
        async with database.opened.shares.turn(by):
            if key is None:
                return await _answered(route, call)
            asked = digest(request, call.body)
            return await once(database.service, by, key, asked, lambda: _answered(route, call))

    def _refused_method(self, scope: Scope) -> Response:
        response = refusal(RequestRefused(405, "wrong_method", f"Allowed here: {self._allow}."), scope)
        response.headers["Allow"] = self._allow
        return response


class Target:
    """Checks the address before anything else and redirects the bare mount point to its first page."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            root = scope.get("root_path", "")
            if root and scope["path"] == root:
                # The first page uses relative links.
                await RedirectResponse(f"{root.rpartition('/')[2]}/")(scope, receive, send)
                return
            try:
                check_framing(scope)
                check_target(scope)
            except RequestRefused as exc:
                await _refused_unread(exc, scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _answered(route: Route, call: Call) -> Response:
    answer = await route.handler(call)
    return answer if isinstance(answer, Response) else Response(answer.model_dump_json(), media_type=_JSON)


def refusal(exc: RequestRefused, scope: Scope) -> Response:
    answer = Refusal.from_refused(exc, request_id(scope))
    headers = {}
    if exc.status == 401:  # noqa: PLR2004 - HTTP 401 Unauthorized
        headers["WWW-Authenticate"] = 'Bearer realm="holdfast"'
    if exc.retry_after is not None:
        headers["Retry-After"] = str(exc.retry_after)
    return Response(answer.model_dump_json(), exc.status, headers, PROBLEM_JSON)


def _refused_unread(exc: RequestRefused, scope: Scope) -> Response:
    """Refuse an unread request and close the connection, so that nothing else on it is read."""
    response = refusal(exc, scope)
    if scope["http_version"].startswith("1"):
        response.headers["Connection"] = "close"
    return response


async def refused_by_starlette(request: Request, exc: Exception) -> Response:
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    code, message = _MESSAGES.get(status, ("refused", "This cannot be answered."))
    response = refusal(RequestRefused(status, code, message), request.scope)
    response.headers.update(getattr(exc, "headers", None) or {})
    return response


async def refused_unnamed(request: Request) -> Response:
    """Refuse a path that names none of several databases."""
    path = request.url.path.removeprefix(request.scope.get("root_path", "")).removeprefix(BASE)
    message = f"There are several databases: ask {BASE}/databases/NAME{path}, and {BASE}/databases for their names."
    return refusal(RequestRefused(404, "no_database_named", message), request.scope)


POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
NO_STORE = {"Cache-Control": "no-store"}


REQUEST_ID = "X-Request-Id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


def request_id(scope: Scope) -> str:
    """Return the id of a request: the one in its header, such as a proxy sends, else a new one."""
    found = scope.get("holdfast.request_id")
    if found is None:
        given = StarletteHeaders(scope=scope).get(REQUEST_ID, "")
        found = scope["holdfast.request_id"] = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
    return str(found)


class Headers:
    """Adds the security headers, the request's id, and `no-store` if the answer sets no Cache-Control."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identity = request_id(scope) if scope["type"] == "http" else ""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers[REQUEST_ID] = identity
                for name, value in NO_STORE.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, sending if scope["type"] == "http" else send)
