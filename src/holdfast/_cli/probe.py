"""Serves /live, /ready and /metrics of a worker from its own thread.

A handler that blocks the event loop does not block these answers: metrics stay available when they are needed most,
and /live reports the blocked loop. Inside the loop, a request would wait like everything else.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holdfast._cli.arguments import Address
from holdfast._engine.keeper import Keeper, unwatched
from holdfast._logs.log import Log
from holdfast.telemetry import Telemetry, instrument

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import timedelta

    import uvicorn
    from prometheus_client.registry import CollectorRegistry
    from starlette.requests import Request
    from starlette.responses import Response

    from holdfast._app.app import Holdfast
    from holdfast._engine.keeper import Turn
    from holdfast._engine.worker import Worker
    from holdfast._model.settings import Settings

log = Log(__name__)

# The most concurrent requests; further ones get 503.
MOST_REQUESTS = 20
STOP_SECONDS = 5.0
TURN_SECONDS = 0.5


class Probe:
    """The state of one worker, readable from another thread."""

    def __init__(self, settings: Settings, registry: CollectorRegistry | None = None) -> None:
        self._settings = settings
        self._registry = registry
        self.keeper = Keeper()
        self._worker: Worker | None = None
        self._turned = time.monotonic()

    def watch(self, worker: Worker) -> None:
        self._worker = worker

    async def turn(self, turn: Turn = unwatched) -> None:
        """Record periodically that the event loop runs."""
        while True:
            turn(TURN_SECONDS)
            self._turned = time.monotonic()
            await asyncio.sleep(TURN_SECONDS)

    @property
    def longest(self) -> timedelta:
        """How long the event loop may be blocked: as long as a handler may run by default."""
        return 3 * self._settings.lease

    async def live(self, _: Request) -> Response:
        from holdfast._ops.health import Live, live_response

        still = time.monotonic() - self._turned
        if still > self.longest.total_seconds():
            return live_response(Live(live=False, text=f"The event loop has stood still for {still:.0f} s."))
        return live_response(Live())

    async def ready(self, _: Request) -> Response:
        from holdfast._ops.health import Trouble, ready_response, troubles_of_worker, worker_ready_response

        if self._worker is None:
            return ready_response([Trouble(code="starting", text="The worker has not been made yet.")])
        if self._worker.stopping:
            return ready_response([Trouble(code="stopping", text="The worker is stopping.")])
        vitals, loops = self._worker.vitals, self._worker.keeper.vitals
        found = troubles_of_worker(
            vitals,
            loops,
            heartbeat=self._settings.heartbeat,
            reap_interval=self._settings.reap_interval,
            lease=self._settings.lease,
        )
        return worker_ready_response(list(found), vitals, loops)

    async def metrics(self, request: Request) -> Response:
        from holdfast._ops.health import exposition

        assert self._registry is not None  # noqa: S101 - a served probe has one
        return exposition(self._registry, request.headers.get("accept", ""))


@asynccontextmanager
async def probed(app: Holdfast, address: Address | None, settings: Settings) -> AsyncIterator[Probe]:
    """Serve a probe within the block. Without an address, yield one that is not served."""
    if address is None:
        yield Probe(settings)
        return
    probe = Probe(settings, _registry(app))
    probe.keeper.start("probe turn", probe.turn)
    try:
        with _Server(probe, address):
            yield probe
    finally:
        await probe.keeper.stop()


def _registry(app: Holdfast) -> CollectorRegistry:
    """Return the registry that already measures the application, or create one and instrument it."""
    from holdfast._telemetry.prometheus import new_registry

    for listener in app.listeners:
        if isinstance(listener, Telemetry) and listener.registry is not None:
            return listener.registry
    registry = new_registry()
    instrument(app, registry=registry)
    return registry


class _Server:
    """The thread and the server in it. A server that ends is replaced on the same socket."""

    def __init__(self, probe: Probe, address: Address) -> None:
        from starlette.applications import Starlette
        from starlette.routing import Route

        self._application = Starlette(
            routes=[
                Route("/live", probe.live),
                Route("/ready", probe.ready),
                Route("/metrics", probe.metrics),
            ]
        )
        self._address = address
        self._keeper = probe.keeper
        self._stopped = False
        self._server = self._new_server()

    def __enter__(self) -> None:
        self._socket = self._address.bind()
        bound = Address(*self._socket.getsockname()[:2])
        self._kept = self._keeper.start_thread("probe", self._run)
        self._kept.wake = self._end
        log.info("listening on http://%s", bound)

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._kept.stop()
        self._end()
        if self._kept.thread is not None:
            self._kept.thread.join(STOP_SECONDS)
        self._socket.close()

    def _end(self) -> None:
        self._server.should_exit = True

    def _run(self, turn: Turn) -> None:
        self._server = self._new_server()
        if self._stopped:
            return
        turn(math.inf)
        # It closes the socket it gets, unless it is stopped while it starts.
        with self._socket.dup() as listening:
            self._server.run([listening])

    def _new_server(self) -> uvicorn.Server:
        import uvicorn

        from holdfast._cli.server import Connection

        return uvicorn.Server(
            uvicorn.Config(
                self._application,
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                limit_concurrency=MOST_REQUESTS,
                timeout_graceful_shutdown=1,
            )
        )
