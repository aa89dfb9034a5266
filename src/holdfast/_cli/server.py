"""A uvicorn server for the operations application. Imported only if the extra `ops` is installed."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.ops import end_streams

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Iterator

    from starlette.applications import Starlette


# Seconds that requests in progress may take after the stop.
_GRACE_SECONDS = 10
_KEEP_ALIVE_SECONDS = 30
# Connections. Below the usual limit of 1,024 open files per process.
_MOST_AT_ONCE = 800
# Requests of connections that were closed to make room, which have not ended yet.
_ENDING = 400


class OperationsServer(uvicorn.Server):
    """Ends live streams before it waits for open requests, because streams do not end by themselves."""

    def __init__(self, application: Starlette, config: uvicorn.Config, *, signals: bool) -> None:
        super().__init__(config)
        self._application = application
        self._signals = signals

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals() if self._signals else nullcontext():
            yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        end_streams(self._application)
        await super().shutdown(sockets)


def make_server(application: Starlette, *, behind_proxy: bool, signals: bool = True) -> OperationsServer:
    """Return a server without version header and access log, which trusts only a known proxy's headers.

    `signals`: whether SIGINT and SIGTERM stop it. Default: True.
    """
    config = uvicorn.Config(
        application,
        http=Connection,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=behind_proxy,
        lifespan="on",
        ws="none",
        limit_concurrency=_MOST_AT_ONCE + _ENDING,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    return OperationsServer(application, config, signals=signals)


Owed: TypeAlias = Literal["headers", "body", "reading", "next request"]

_TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_FLUSH_SECONDS = 1.0


class _Debt(NamedTuple):
    """The part of the request that the client still owes."""

    owed: Owed
    request: object


class Connection(H11Protocol):
    """Closes the connection if the client is too slow to send headers or a body, or to read the response.

    uvicorn's only timeout is for idle connections, and every byte restarts it, so half-sent requests could use up all
    connections. At the limit, the connection that has waited longest is closed for a new one.
    """

    # The application itself answers 408 for a body after 10 seconds.
    seconds: dict[Owed, float] = {"headers": 10.0, "body": 12.0, "reading": 30.0, "next request": 60.0}  # noqa: RUF012 - only replaced

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._debt: _Debt | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled = self._answered = False
        self.owes_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._settle()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        self._answered = True
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = True
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled = False
        self._watch()

    def _watch(self) -> None:
        """Start a deadline when the client owes something new. Bytes that do not complete it do not extend it."""
        owed = self._owed()
        debt = None if owed is None else _Debt(owed, self.cycle)
        if debt == self._debt:
            return
        self._settle()
        if owed is not None:
            self._debt, self.owes_since = debt, self.loop.time()
            self._deadline = self.loop.call_later(self.seconds[owed], self._end)

    def _owed(self) -> Owed | None:
        if self._stalled:
            return "reading"
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        if self.conn.their_state is not h11.IDLE:
            return None
        return "next request" if self._answered and not self.conn.trailing_data[0] else "headers"

    def _settle(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._debt = self._deadline = self.owes_since = None

    def _make_room(self) -> None:
        limit = self.limit_concurrency
        while limit is not None and len(self.connections) >= limit - _ENDING:
            others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
            owing = [(one.owes_since, id(one), one) for one in others if one.owes_since is not None]
            if not owing:
                return
            *_, longest = min(owing)
            self.connections.discard(longest)
            longest.transport.abort()

    def _end(self) -> None:
        if self._debt is not None and self._debt.owed == "headers" and self.conn.trailing_data[0]:
            self.transport.write(_TIMED_OUT)
        self.transport.close()
        self.loop.call_later(_FLUSH_SECONDS, self.transport.abort)
