"""Readiness and metrics, as the application answers with them."""

from __future__ import annotations

import asyncio
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from holdfast.ops import health
from holdfast.ops.refusal import Refused
from holdfast.telemetry.telemetry import Telemetry

if TYPE_CHECKING:
    from datetime import timedelta

    from prometheus_client.registry import CollectorRegistry
    from starlette.responses import Response

    from holdfast.app import Holdfast
    from holdfast.ops.desk import Desk
    from holdfast.ops.gauges import Gauges

FRESH = 1.0
"""Seconds for which readiness holds: whoever asks more often is told the same."""


class Probes:
    def __init__(self, app: Holdfast | None, reap_interval: timedelta) -> None:
        self._app = app
        self._reap_interval = reap_interval
        self._measured: tuple[CollectorRegistry, Gauges] | None = None
        self._asking: asyncio.Task[Response] | None = None
        self._asked = -FRESH

    async def ready(self, desk: Desk) -> Response:
        """Ask the database at most once a second, however many ask here: nobody has to say who they are."""
        now, loop = time.monotonic(), asyncio.get_running_loop()
        asking = self._asking
        if asking is None or asking.get_loop() is not loop or (asking.done() and now - self._asked >= FRESH):
            self._asked = now
            asking = self._asking = asyncio.create_task(health.ready(desk, reap_interval=self._reap_interval))
        return await asyncio.shield(asking)

    async def metrics(self, desk: Desk, accept: str) -> Response:
        if find_spec("prometheus_client") is None:
            raise Refused(404, "not_installed", "Metrics need the extra `prometheus`.")
        if self._measured is None:
            self._measured = _measured(self._app)
        registry, gauges = self._measured
        return await health.metrics(desk, gauges, registry, accept)


def _measured(app: Holdfast | None) -> tuple[CollectorRegistry, Gauges]:
    """Return a registry of our own: the fleet's gauges, and what the application's workers in this process count."""
    from prometheus_client.registry import CollectorRegistry

    from holdfast.ops.gauges import Gauges

    registry = CollectorRegistry()
    listeners = [] if app is None else app.listeners
    for told in listeners:
        if isinstance(told, Telemetry) and told.registry is not None:
            registry.register(told.registry)
    return registry, Gauges(registry=registry)
