"""The operations application: ASGI, to be mounted anywhere or served by itself."""

from __future__ import annotations

import asyncio
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

from holdfast.masking import NAMES
from holdfast.ops.access import Access
from holdfast.ops.desk import Desk
from holdfast.ops.endpoint import Endpoint, Target, refused_by_starlette
from holdfast.ops.headers import Headers
from holdfast.ops.limit import Failures
from holdfast.ops.outbox import OutboxEndpoints
from holdfast.ops.page import pages
from holdfast.ops.probes import Probes
from holdfast.ops.redaction import Redaction
from holdfast.ops.room import Room
from holdfast.ops.routes import ROUTES
from holdfast.ops.session import Sessions
from holdfast.settings import Settings, SettingsError
from holdfast.store.access import find_access_token, is_session_ended

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from holdfast.app import Holdfast
    from holdfast.ops.access import Authenticate
    from holdfast.ops.jwt import JwtAccess
    from holdfast.ops.pulse import Pulse
    from holdfast.ops.redaction import Redactor
    from holdfast.ops.routes import Route
    from holdfast.ops.share import Shares
    from holdfast.store.access import AccessToken


class Operations:
    """What the application keeps while it runs.

    A mounted application is told neither when its site starts nor when it stops, so a room is opened by the first who
    asks, and anew in another event loop.
    """

    def __init__(  # noqa: PLR0913 - what it is put together from
        self,
        make_room: Callable[[], Room],
        *,
        routes: tuple[Route, ...],
        outbox: OutboxEndpoints,
        probes: Probes,
        sessions: Sessions,
        jwt: JwtAccess | None,
        authenticate: Authenticate | None,
    ) -> None:
        self._make_room = make_room
        self._room: Room | None = None
        self.routes = routes
        self.outbox = outbox
        self.probes = probes
        self.sessions = sessions
        self.access = Access(
            self._find_token,
            sessions=sessions,
            failures=Failures(),
            jwt=jwt,
            authenticate=authenticate,
            is_ended=self._is_session_ended,
        )

    @property
    def desk(self) -> Desk:
        return self._opened().desk

    @property
    def shares(self) -> Shares:
        return self._opened().shares

    @property
    def pulse(self) -> Pulse:
        return self._opened().pulse

    def end_streams(self) -> None:
        if self._room is not None:
            self._room.pulse.end()

    async def close(self) -> None:
        """End the streams and close the connections. A later request opens them again."""
        room, self._room = self._room, None
        if room is not None and room.loop is asyncio.get_running_loop():
            await room.close()

    def _opened(self) -> Room:
        if self._room is None or self._room.loop is not asyncio.get_running_loop():
            self._room = self._make_room()
        return self._room

    async def _find_token(self, key: str) -> AccessToken | None:
        return await self.desk.ask(find_access_token(key))

    async def _is_session_ended(self, session: str) -> bool:
        return await self.desk.ask(is_session_ended(session))


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
    """Return an application to serve, or to mount: under `/holdfast`, or wherever you like.

    Without `app`, only with the `url` of a database, all is there but running handlers. Who may come in: the holders
    of access tokens; those whom `jwt` trusts; and those whom `authenticate(request)`, sync or async, names as a
    `Person`. `redact_fields` are hidden in payloads besides those that always are, and `redact(kind, value)` returns
    what may be shown. It opens at most `connections`, and no statement takes longer than `timeout`. `secret` signs
    sessions; several processes behind one address need the same. `public_metrics`: /metrics is for everybody.
    """
    settings = Settings.load(os.environ)
    address = url or (app.url if app is not None else None) or next(iter(settings.database_urls), None)
    if address is None:
        raise SettingsError(["no database: give operations() an address, or set HOLDFAST_DATABASE_URL"])
    redaction = Redaction(NAMES | set(redact_fields), redact)
    kept = Operations(
        lambda: Room(
            Desk(address, connections=connections, timeout=timeout, redaction=redaction),
            connections=connections,
            every=pulse_every,
            listeners=pulse_listeners,
        ),
        routes=_routes(public_metrics=public_metrics),
        outbox=OutboxEndpoints(app, address, settings),
        probes=Probes(app, settings.reap_interval),
        sessions=Sessions(secret),
        jwt=jwt,
        authenticate=authenticate,
    )
    site = Starlette(
        routes=[*_endpoints(kept), *_page_routes()],
        middleware=[Middleware(Headers), Middleware(Target)],
        exception_handlers={HTTPException: refused_by_starlette},
        lifespan=partial(_lifespan, kept),
    )
    site.state.operations = kept
    # A redirect would repeat the host that the client claims.
    site.router.redirect_slashes = False
    return site


def end_streams(site: Starlette) -> None:
    """End every live stream of the application, and begin none: a server that stops waits for them."""
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


def _endpoints(kept: Operations) -> list[StarletteRoute]:
    by_path: dict[str, dict[str, Route]] = {}
    for route in kept.routes:
        by_path.setdefault(route.path, {})[route.method] = route
    return [
        StarletteRoute(re.sub(r"\{(name|queue)\}", r"{\1:path}", path), Endpoint(kept, methods), name=path)
        for path, methods in by_path.items()
    ]


def _page_routes() -> list[StarletteRoute]:
    return [StarletteRoute(path, page.response) for path, page in pages().items()]
