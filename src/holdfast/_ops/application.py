"""The operations application: ASGI, to be mounted or served on its own."""

from __future__ import annotations

import os
import re
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route as StarletteRoute

from holdfast._logs.masking import NAMES
from holdfast._model.settings import Settings, SettingsError
from holdfast._ops.access import Sessions
from holdfast._ops.endpoint import Endpoint, Headers, Target, refused_by_starlette
from holdfast._ops.health import Probes
from holdfast._ops.openapi import document
from holdfast._ops.outbox import OutboxEndpoints
from holdfast._ops.page import pages
from holdfast._ops.redaction import Redaction
from holdfast._ops.routes import ROUTES, OpenService, Operations
from holdfast._ops.service import Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from holdfast._app.app import Holdfast
    from holdfast._ops.access import Authenticate
    from holdfast._ops.jwt import JwtAccess
    from holdfast._ops.redaction import Redactor
    from holdfast._ops.routes import Route


def operations(  # noqa: PLR0913 - one keyword per choice
    app: Holdfast | None = None,
    *,
    url: str | None = None,
    authenticate: Authenticate | None = None,
    jwt: JwtAccess | None = None,
    redact_fields: Collection[str] = (),
    redact: Redactor | None = None,
    connections: int = 4,
    timeout: timedelta = timedelta(seconds=2),
    secret: str | None = None,
    public_metrics: bool = False,
    pulse_every: timedelta = timedelta(seconds=2),
    pulse_listeners: int = 200,
) -> Starlette:
    """Return an ASGI application to serve or to mount, for example under `/holdfast`.

    Without `app`, only with the `url` of a database, everything works except running handlers. Callers authenticate
    with an access token, a token that `jwt` trusts, or `authenticate(request)`, sync or async, which returns a
    `Person`. `redact_fields` are hidden in payloads in addition to the default ones, and `redact(kind, value)` returns
    the value to show. `connections`: the most connections it opens. Default: 4. `timeout`: of each statement. Default:
    2 seconds. `secret`: signs sessions; processes behind one address must share it. `public_metrics`: no login for
    /metrics. `pulse_every`: how often open pages are updated. Default: 2 seconds. `pulse_listeners`: the most streams
    of open pages. Default: 200.
    """
    settings = Settings.load(os.environ)
    address = url or (app.url if app is not None else None) or next(iter(settings.database_urls), None)
    if address is None:
        raise SettingsError(["no database: give operations() an address, or set HOLDFAST_DATABASE_URL"])
    routes = _routes(public_metrics=public_metrics)
    redaction = Redaction(NAMES | set(redact_fields), redact)
    kept = Operations(
        lambda: OpenService(
            Service(
                address,
                connections=connections,
                timeout=timeout,
                redaction=redaction,
                listeners=() if app is None else app.listeners,
            ),
            connections=connections,
            every=pulse_every,
            listeners=pulse_listeners,
        ),
        document=partial(document, routes),
        outbox=OutboxEndpoints(app, address, settings),
        probes=Probes(app, settings.reap_interval),
        sessions=Sessions(secret),
        jwt=jwt,
        authenticate=authenticate,
    )
    site = Starlette(
        routes=[*_endpoints(kept, routes), *_page_routes()],
        middleware=[Middleware(Headers), Middleware(Target)],
        exception_handlers={HTTPException: refused_by_starlette},
        lifespan=partial(_lifespan, kept),
    )
    site.state.operations = kept
    # A redirect would echo the host that the client claims.
    site.router.redirect_slashes = False
    return site


def end_streams(site: Starlette) -> None:
    """End all live streams and refuse new ones, because a stopping server waits for them."""
    kept: Operations = site.state.operations
    kept.end_streams()


@asynccontextmanager
async def _lifespan(kept: Operations, _: Starlette) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await kept.close()


def _routes(*, public_metrics: bool) -> tuple[Route, ...]:
    public = {"/metrics"} if public_metrics else set()
    return tuple(replace(route, role=None) if route.path in public else route for route in ROUTES)


def _endpoints(kept: Operations, routes: tuple[Route, ...]) -> list[StarletteRoute]:
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = route
    return [
        StarletteRoute(re.sub(r"\{(name|queue)\}", r"{\1:path}", path), Endpoint(kept, methods), name=path)
        for path, methods in by_path.items()
    ]


def _page_routes() -> list[StarletteRoute]:
    return [StarletteRoute(path, page.response) for path, page in pages().items()]
