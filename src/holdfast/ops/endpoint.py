"""One path of the table: reads what is asked, looks whether it may be, and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from holdfast.logs import Log
from holdfast.ops.answer import Refusal
from holdfast.ops.idempotency import digest, key_of, once
from holdfast.ops.limit import Limited
from holdfast.ops.origin import SAFE
from holdfast.ops.person import Person
from holdfast.ops.reading import check_framing, check_length, check_target, read_body, read_path, read_query
from holdfast.ops.refusal import Refused
from holdfast.ops.role import Role
from holdfast.ops.routes import Call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Receive, Scope, Send

    from holdfast.ops.application import Operations
    from holdfast.ops.routes import Route

log = Log(__name__)

ANYBODY = Person("anybody", Role.VIEWER)
_JSON = "application/json"
_SAID = {404: ("not_found", "There is nothing here."), 405: ("wrong_method", "Here one may only look.")}


class Endpoint:
    """The routes of one path, by their methods."""

    def __init__(self, operations: Operations, routes: Mapping[str, Route]) -> None:
        self._operations = operations
        self._routes = routes
        self._allow = ", ".join(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        route = self._routes.get(request.method)
        try:
            response = self._refused_method() if route is None else await self._answer(request, route)
        except Refused as exc:
            response = refusal(exc)
        except ClientDisconnect:
            return
        except Exception:
            log.exception("a request failed", extra={"method": request.method, "route": route and route.path})
            response = refusal(Refused(500, "internal", "This is a fault of the application; its log says which."))
        await response(scope, receive, send)

    async def _answer(self, request: Request, route: Route) -> Response:
        check_length(request.headers.get("content-length"))
        operations = self._operations
        by = ANYBODY if route.role is None else await operations.access.allowed(request, route.role)
        call = Call(
            request=request,
            operations=operations,
            desk=operations.desk,
            by=by,
            path=read_path(request),
            query=None if route.query is None else read_query(request, route.query),
            body=None if route.body is None else await read_body(request, route.body),
        )
        if route.role is None:
            return await _answered(route, call)
        # Signing in and out has a role of nobody, and leaves a cookie that is not to be kept.
        key = None if request.method in SAFE else key_of(request)
        async with operations.shares.turn(by):
            if key is None:
                return await _answered(route, call)
            asked = digest(request.method, request.url.path, call.body)
            return await once(operations.desk, by, key, asked, lambda: _answered(route, call))

    def _refused_method(self) -> Response:
        response = refusal(Refused(405, "wrong_method", f"Here one may {self._allow}."))
        response.headers["Allow"] = self._allow
        return response


class Target:
    """Looks at the address before anything else does, and says in our words what Starlette refuses."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            root = scope.get("root_path", "")
            if root and scope["path"] == root:
                # The links of the first page are relative.
                await RedirectResponse(f"{root.rpartition('/')[2]}/")(scope, receive, send)
                return
            try:
                check_framing(scope)
                check_target(scope)
            except Refused as exc:
                await _refused_unread(exc, scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _answered(route: Route, call: Call) -> Response:
    answer = await route.handler(call)
    return answer if isinstance(answer, Response) else Response(answer.model_dump_json(), media_type=_JSON)


def refusal(exc: Refused) -> Response:
    said = Refusal(error=exc.code, message=exc.message)
    headers = {}
    if exc.status == 401:  # noqa: PLR2004 - known by its number
        headers["WWW-Authenticate"] = 'Bearer realm="holdfast"'
    if isinstance(exc, Limited):
        headers["Retry-After"] = str(exc.seconds)
    return Response(said.model_dump_json(), exc.status, headers, _JSON)


def _refused_unread(exc: Refused, scope: Scope) -> Response:
    """Refuse what was not read; whatever else the client has sent on this connection is not read either."""
    response = refusal(exc)
    if scope["http_version"].startswith("1"):
        response.headers["Connection"] = "close"
    return response


async def refused_by_starlette(_: Request, exc: Exception) -> Response:
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    code, message = _SAID.get(status, ("refused", "This cannot be answered."))
    response = refusal(Refused(status, code, message))
    response.headers.update(getattr(exc, "headers", None) or {})
    return response
