"""The operations application: ASGI, to be mounted or served on its own, with the dashboard's files."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from holdfast._archive.location import Location
from holdfast._logs.masking import NAMES
from holdfast._model.databases import Databases, databases_of, named
from holdfast._model.duration import DAY, MILLISECOND, as_timedelta
from holdfast._model.settings import Settings, SettingsError
from holdfast._ops.access import Sessions
from holdfast._ops.archive import ArchiveEndpoints
from holdfast._ops.databases import OpenService, WatchedDatabase
from holdfast._ops.endpoint import Endpoint, Headers, Target, refused_by_starlette, refused_unnamed
from holdfast._ops.health import Probes
from holdfast._ops.openapi import document
from holdfast._ops.outbox import OutboxEndpoints
from holdfast._ops.redaction import Redaction
from holdfast._ops.routes import ROUTES, Operations
from holdfast._ops.service import Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator
    from importlib.resources.abc import Traversable

    from starlette.requests import Request

    from holdfast._app.app import Holdfast
    from holdfast._model.duration import Duration
    from holdfast._ops.access import Authenticate
    from holdfast._ops.jwt import JwtAccess
    from holdfast._ops.redaction import Redactor
    from holdfast._ops.routes import Route


def operations(  # noqa: PLR0913 - one keyword per choice
    app: Holdfast | None = None,
    *,
    url: str | Databases | None = None,
    authenticate: Authenticate | None = None,
    jwt: JwtAccess | None = None,
    redact_fields: Collection[str] = (),
    redact: Redactor | None = None,
    connections: int = 4,
    timeout: Duration = 2,
    secret: str | None = None,
    public_metrics: bool = False,
    live_every: Duration = 2,
    live_clients: int = 200,
) -> Starlette:
    """Return an ASGI application to serve or to mount, for example under `/holdfast`.

    Without `app`, only with the `url` of a database or several `Databases`, everything works except running handlers.
    With several, the dashboard has a page for all, and paths of one begin with `databases/NAME`. Callers authenticate
    with an access token, a token that `jwt` trusts, or `authenticate(request)`, sync or async, which returns a
    `Person`. `redact_fields` are hidden in payloads in addition to the default ones, and `redact(kind, value)` returns
    the value to show. `connections`: the most connections to each database. Default: 4. `timeout`: of each statement,
    in seconds or a timedelta. Default: 2 seconds. `secret`: signs sessions; processes behind one address must share it.
    `public_metrics`: no login for /metrics. `live_every`: how often open pages are updated, in seconds or a timedelta.
    Default: 2 seconds. `live_clients`: the most streams of open pages. Default: 200.
    """
    settings = Settings.load(os.environ)
    databases = _databases(app, url, settings)
    routes = _routes(several=len(databases) > 1, public_metrics=public_metrics)
    redaction = Redaction(NAMES | set(redact_fields), redact)

    def open_service(address: str) -> OpenService:
        return OpenService(
            Service(
                address,
                connections=connections,
                timeout=as_timedelta("timeout", timeout, least=MILLISECOND, limit=DAY),
                redaction=redaction,
                listeners=() if app is None else app.listeners,
            ),
            connections=connections,
            every=as_timedelta("live_every", live_every, least=MILLISECOND, limit=DAY),
            listeners=live_clients,
        )

    kept = Operations(
        {
            name: WatchedDatabase(
                name,
                partial(open_service, address),
                OutboxEndpoints(app, address, settings),
                draining=name in databases.draining,
            )
            for name, address in databases.items()
        },
        document=partial(document, routes),
        archive=ArchiveEndpoints(Location.of(settings)),
        probes=Probes(app, settings.reap_interval),
        sessions=Sessions(secret),
        jwt=jwt,
        authenticate=authenticate,
    )
    application = Starlette(
        routes=[*_endpoints(kept, routes), *_page_routes()],
        middleware=[Middleware(Headers), Middleware(Target)],
        exception_handlers={HTTPException: refused_by_starlette},
        lifespan=partial(_lifespan, kept),
    )
    application.state.operations = kept
    # A redirect would echo the host that the client claims.
    application.router.redirect_slashes = False
    return application


def end_streams(application: Starlette) -> None:
    """End all live streams and refuse new ones, because a stopping server waits for them."""
    kept: Operations = application.state.operations
    kept.end_streams()


@asynccontextmanager
async def _lifespan(kept: Operations, _: Starlette) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await kept.close()


def _databases(app: Holdfast | None, url: str | Databases | None, settings: Settings) -> Databases:
    if isinstance(url, Databases):
        return url
    if url:
        return named([url])
    if app is not None and app.has_own_database:
        return app.databases
    if not settings.database_urls and settings.databases_file is None:
        raise SettingsError(["no database: give operations() an address, or set HOLDFAST_DATABASE_URL"])
    return databases_of(settings)


def _routes(*, several: bool, public_metrics: bool) -> tuple[Route, ...]:
    """Return the routes. With several databases, the path of a route for one of them has its name."""
    public = {"/metrics"} if public_metrics else set()
    routes = [replace(route, role=None) if route.path in public else route for route in ROUTES]
    return tuple(route.of_one_of_several() if several else route for route in routes)


def _endpoints(kept: Operations, routes: tuple[Route, ...]) -> list[StarletteRoute]:
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = route
    unnamed = [route.path for route in ROUTES if route.path not in by_path]
    return [
        *(StarletteRoute(_pattern(path), Endpoint(kept, methods), name=path) for path, methods in by_path.items()),
        *(StarletteRoute(_pattern(path), refused_unnamed) for path in unnamed),
    ]


def _pattern(path: str) -> str:
    return re.sub(r"\{(name|queue)\}", r"{\1:path}", path)


def _page_routes() -> list[StarletteRoute]:
    return [StarletteRoute(path, page.response) for path, page in pages().items()]


INDEX = "index.html"
_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "ico": "image/x-icon",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "webmanifest": "application/manifest+json",
    "woff2": "font/woff2",
}
_PACKED = frozenset({"png", "woff2"})
_LEAST_PACKED = 1_000
_NOT_BUILT = b"""<!doctype html>
<html lang="en">
<title>Holdfast</title>
<h1>Holdfast</h1>
<p>This installation of Holdfast has no dashboard. It was installed from source on a machine without Node,
or in a clone where the dashboard was not built. The wheels of releases contain it.</p>
<p>In a clone, run <code>make dashboard</code> and start this process again. To install from source with the dashboard,
install Node and run <code>HOLDFAST_DASHBOARD=require pip install .</code>, which fails if it cannot be built.</p>
<p>The API works without it: <a href="api/v1/openapi.json">api/v1/openapi.json</a>.</p>
</html>
"""


@dataclass(frozen=True, slots=True)
class DashboardFile:
    data: bytes
    packed: bytes | None
    """The data compressed with gzip; None if that saves nothing."""
    media_type: str
    tag: str
    cached: str

    def response(self, request: Request) -> Response:
        headers = {"Cache-Control": self.cached, "ETag": self.tag, "Vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        if self.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.packed, media_type=self.media_type, headers=headers | {"Content-Encoding": "gzip"})
        return Response(self.data, media_type=self.media_type, headers=headers)


@cache
def pages() -> dict[str, DashboardFile]:
    """Return the files that this installation ships, or that were built here."""
    return read_pages(files("holdfast._ops").joinpath("pages"))


def read_pages(folder: Traversable) -> dict[str, DashboardFile]:
    """Return every file by its path below the application. `/` is the index page."""
    found = dict(_walk(folder)) if folder.is_dir() else {}
    return {f"/{name}": page for name, page in found.items()} | {"/": found.get(INDEX) or _page(INDEX, _NOT_BUILT)}


def _walk(folder: Traversable, below: str = "") -> Iterator[tuple[str, DashboardFile]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{below}{entry.name}/")
        elif not entry.name.startswith("."):
            yield f"{below}{entry.name}", _page(f"{below}{entry.name}", entry.read_bytes())


def _page(name: str, data: bytes) -> DashboardFile:
    ending = name.rpartition(".")[2].lower()
    packed = gzip.compress(data, mtime=0) if len(data) >= _LEAST_PACKED and ending not in _PACKED else None
    # Asset names contain a hash of the content.
    immutable = name.startswith("assets/")
    return DashboardFile(
        data,
        packed,
        _TYPES.get(ending, "application/octet-stream"),
        f'"{hashlib.sha256(data).hexdigest()[:32]}"',
        "public, max-age=31536000, immutable" if immutable else "no-cache",
    )
