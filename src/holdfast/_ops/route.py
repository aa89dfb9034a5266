"""A route, a call of it, and the state that all calls share."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from holdfast._logs.log import Log
from holdfast._ops.access import Access
from holdfast._ops.limit import Failures, Shares
from holdfast._ops.live import LiveOverview
from holdfast._ops.person import RequestRefused
from holdfast._store.access import find_access_token, is_session_ended

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from starlette.requests import Request

    from holdfast._ops import requests
    from holdfast._ops.access import Authenticate
    from holdfast._ops.health import Probes
    from holdfast._ops.jwt import JwtAccess
    from holdfast._ops.outbox import OutboxEndpoints
    from holdfast._ops.person import Person
    from holdfast._ops.service import Service
    from holdfast._ops.session import Sessions
    from holdfast._store.access import AccessToken
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from starlette.responses import Response

from holdfast._ops.parse import Nothing
from holdfast._ops.person import Role
from holdfast._ops.responses import Answer


class Operations:
    """The application's state while it runs.

    A mounted application gets no startup or shutdown event, so the first request opens the service, once per event
    loop.
    """

    def __init__(  # noqa: PLR0913 - the parts it is composed of
        self,
        make_room: Callable[[], OpenService],
        *,
        routes: tuple[Route, ...],
        outbox: OutboxEndpoints,
        probes: Probes,
        sessions: Sessions,
        jwt: JwtAccess | None,
        authenticate: Authenticate | None,
    ) -> None:
        self._make_room = make_room
        self._room: OpenService | None = None
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
    def service(self) -> Service:
        return self._opened().service

    @property
    def shares(self) -> Shares:
        return self._opened().shares

    @property
    def pulse(self) -> LiveOverview:
        return self._opened().pulse

    def end_streams(self) -> None:
        if self._room is not None:
            self._room.pulse.end()

    async def close(self) -> None:
        """End the streams and close the connections. A later request opens them again."""
        room, self._room = self._room, None
        if room is not None and room.loop is asyncio.get_running_loop():
            await room.close()

    def _opened(self) -> OpenService:
        if self._room is None or self._room.loop is not asyncio.get_running_loop():
            self._room = self._make_room()
        return self._room

    async def _find_token(self, key: str) -> AccessToken | None:
        return await self.service.ask(find_access_token(key))

    async def _is_session_ended(self, session: str) -> bool:
        return await self.service.ask(is_session_ended(session))


log = Log(__name__)


COUNT_EVERY = 5.0


MINUTES = 60


class OpenService:
    """A service and its state for one event loop. It connects on the first query."""

    def __init__(self, service: Service, *, connections: int, every: timedelta, listeners: int) -> None:
        self.shares = Shares(connections)
        self.loop = asyncio.get_running_loop()
        self.service = service
        self.pulse = LiveOverview(self._read, every=every.total_seconds(), most=listeners)
        self._counting: asyncio.Task[None] | None = None
        self._counted = -COUNT_EVERY

    async def close(self) -> None:
        self.pulse.end()
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)
        await self.service.__aexit__(None, None, None)

    async def _read(self) -> bytes:
        self._count()
        return (await self.service.overview(MINUTES)).model_dump_json().encode()

    def _count(self) -> None:
        """Count live jobs in the background, in case no worker does."""
        if self._counting is not None and not self._counting.done():
            return
        if time.monotonic() - self._counted >= COUNT_EVERY:
            self._counted = time.monotonic()
            self._counting = asyncio.create_task(self._count_once(), name="holdfast-count")

    async def _count_once(self) -> None:
        try:
            await self.service.count(small=False)
        except RequestRefused as exc:
            log.debug("live jobs were not counted", extra={"why": exc.code})
        except Exception:
            log.exception("live jobs cannot be counted")


Method: TypeAlias = Literal["GET", "POST", "PUT", "DELETE"]


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was read and may be answered."""

    request: Request
    operations: Operations
    service: Service
    by: Person
    path: Mapping[str, Any]
    query: Any
    body: Any


Handler: TypeAlias = Callable[[Call], Awaitable[Answer | Response]]


Answers: TypeAlias = type[Answer] | tuple[type[Answer], ...] | str


@dataclass(frozen=True, slots=True)
class Route:
    method: Method
    path: str
    """`{id}` is an id, `{name}` and `{queue}` are names, slashes included."""
    role: Role | None
    """None: anybody."""
    summary: str
    answer: Answers
    """The model, or one of several; a media type where it is no JSON of ours."""
    handler: Handler
    query: type[requests.Question] | None = Nothing
    """None: whatever is there is not looked at."""
    body: type[requests.Question] | None = None
    refusals: tuple[int, ...] = ()
    """Beyond those that the rest of the line implies."""
    also: tuple[tuple[int, type[Answer]], ...] = ()
    """Answers with another status than 200 that are not refusals."""
