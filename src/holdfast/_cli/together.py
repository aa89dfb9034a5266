"""A worker and the dashboard in one process, for `holdfast dev` and `holdfast demo`."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.routing import Route

from holdfast._cli.server import make_server
from holdfast._ops.application import operations
from holdfast._ops.caller import Person, Role
from holdfast._store.access import end_session, is_session_ended

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from holdfast._app.app import Holdfast
    from holdfast._ops.routes import Operations

# Seconds for which a session lasts.
_SESSION_SECONDS = 12 * 3600.0
# As the audit names them.
_WHO = "dev"


class LoginOnce(NamedTuple):
    code: str
    secret: str
    """Signs sessions, so that they outlive a reload."""

    @classmethod
    def new(cls) -> LoginOnce:
        """Return a random one."""
        return cls(secrets.token_urlsafe(16), secrets.token_urlsafe(32))


@asynccontextmanager
async def dashboard(app: Holdfast, url: str | None, listening: socket.socket, login: LoginOnce) -> AsyncIterator[None]:
    """Serve the dashboard during the block. The address `/login/CODE` signs a browser in once, as a developer.

    `url`: the database. None: those of the application, or of the environment.
    """
    application = operations(app, url=url, secret=login.secret)
    _add_login(application, login.code)
    server = make_server(application, behind_proxy=False, signals=False)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await serving


def _add_login(application: Starlette, code: str) -> None:
    kept: Operations = application.state.operations
    # Kept in the database, as an ended session is: a reload does not make the code valid again.
    used = f"once-{hashlib.sha256(code.encode()).hexdigest()[:24]}"

    async def sign_in(request: Request) -> Response:
        given, service = str(request.path_params["code"]), kept.first.service
        if not hmac.compare_digest(given.encode(), code.encode()) or await service.run(is_session_ended(used)):
            text = "This link is not valid: it signs you in once. Start the command again for another.\n"
            return PlainTextResponse(text, status_code=403)
        until = time.time() + _SESSION_SECONDS
        await service.run(end_session(used, until))
        response = RedirectResponse("/", status_code=303)
        kept.sessions.write(request, response, kept.sessions.of_person(Person(_WHO, Role.DEVELOPER), until))
        return response

    application.router.routes.insert(0, Route("/login/{code}", sign_in))
