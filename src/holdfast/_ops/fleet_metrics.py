"""Metrics of the whole fleet, read from the database on each scrape, without counting rows."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from holdfast._logs.log import Log
from holdfast._ops.person import RequestRefused
from holdfast._store.schema import read_readiness
from holdfast._telemetry import instruments as it
from holdfast._telemetry.series import Series

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.metrics import MeterProvider
    from prometheus_client.registry import CollectorRegistry

    from holdfast._ops.responses import Overview, QueueOverview, Subscriptions
    from holdfast._ops.service import Service
    from holdfast._store.schema import Readiness
    from holdfast._telemetry.instruments import Instrument
    from holdfast._telemetry.series import Labels

    Values: TypeAlias = dict[Instrument, dict[Labels, float]]

MINUTES = 5
# Scrapes within this many seconds share one result.
FRESH_SECONDS = 1.0

log = Log(__name__)


class Gauges:
    """Gauges for a prometheus-client registry, an OpenTelemetry meter provider, or both."""

    def __init__(
        self, *, registry: CollectorRegistry | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        self.series = Series(it.FLEET)
        self._looked = -FRESH_SECONDS
        if registry is not None:
            from holdfast._telemetry.prometheus import SeriesCollector

            registry.register(SeriesCollector(self.series))
        if meter_provider is not None:
            from holdfast._telemetry.opentelemetry import SeriesMeter

            SeriesMeter(meter_provider, self.series)

    async def look(self, service: Service) -> None:
        """Read all values, unless they are fresh. If the database does not answer, `up` becomes 0."""
        if time.monotonic() - self._looked < FRESH_SECONDS:
            return
        try:
            ready = await service.ask(read_readiness())
            overview, subscriptions = await service.overview(MINUTES), await service.subscriptions()
        except RequestRefused as exc:
            log.warning("the fleet cannot be measured", extra={"why": exc.code})
            self.series.replace({it.FLEET_UP: {(): 0.0}})
        else:
            self.series.replace(_values(ready, overview, subscriptions))
        self._looked = time.monotonic()

    async def watch(self, service: Service, every: timedelta = timedelta(seconds=15)) -> None:
        """Refresh the values periodically, for exporters that push."""
        while True:
            await self.look(service)
            await asyncio.sleep(every.total_seconds())


def _values(
    ready: Readiness, overview: Overview, subscriptions: Subscriptions
) -> Mapping[Instrument, dict[Labels, float]]:
    found: Values = defaultdict(dict)
    found[it.FLEET_UP][()] = 1.0
    found[it.FLEET_WORKERS][()] = ready.live
    found[it.FLEET_SILENT][()] = ready.silent
    if ready.reaped is not None:
        found[it.FLEET_REAPER_AGE][()] = ready.reaped
    if overview.counted_at is not None:
        found[it.FLEET_CENSUS_AGE][()] = max(0.0, (overview.at - overview.counted_at).total_seconds())
    for queue in overview.queues:
        _queue(found, queue)
    for kind in overview.unserved:
        found[it.KIND_UNSERVED][kind.queue, kind.kind] = kind.due
    for line in subscriptions.subscriptions:
        found[it.SUBSCRIPTION_LAG][line.name,] = line.lag_events
        found[it.SUBSCRIPTION_AGE][line.name,] = line.lag_seconds
        found[it.SUBSCRIPTION_PARKED][line.name,] = line.parked
    return found


def _queue(found: Values, queue: QueueOverview) -> None:
    name, depth = queue.name, queue.depth
    for instrument, value in (
        (it.QUEUE_PENDING, depth.pending),
        (it.QUEUE_DUE, depth.due),
        (it.QUEUE_PROCESSING, depth.processing),
        (it.QUEUE_STUCK, depth.stuck),
        (it.QUEUE_BLOCKED, depth.blocked),
        (it.QUEUE_OLDEST, depth.oldest_due_seconds),
        (it.QUEUE_PAUSED, float(queue.paused)),
    ):
        found[instrument][name,] = value
    for outcome, word in (
        ("completed", "completed"),
        ("failed", "failed"),
        ("retried", "retry"),
        ("cancelled", "cancelled"),
    ):
        found[it.QUEUE_ENDED][name, word] = sum(getattr(minute, outcome) for minute in queue.minutes)
    for quantile in ("p50", "p95", "p99"):
        if (seconds := getattr(queue.latency, quantile)) is not None:
            found[it.QUEUE_LATENCY][name, quantile] = seconds
