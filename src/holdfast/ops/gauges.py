"""What the database says of the whole fleet, as metrics: read when somebody scrapes, and never by counting."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from holdfast.logs import Log
from holdfast.ops.refusal import Refused
from holdfast.store.readiness import read_readiness
from holdfast.telemetry import instruments as it
from holdfast.telemetry.series import Series

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.metrics import MeterProvider
    from prometheus_client.registry import CollectorRegistry

    from holdfast.ops.answer import Overview, QueueOverview, Subscriptions
    from holdfast.ops.desk import Desk
    from holdfast.store.readiness import Readiness
    from holdfast.telemetry.instruments import Instrument
    from holdfast.telemetry.series import Labels

    Values: TypeAlias = dict[Instrument, dict[Labels, float]]

MINUTES = 5
# A scrape within this time of another gets the same answer.
FRESH_SECONDS = 1.0

log = Log(__name__)


class Gauges:
    """Fed to a registry of prometheus-client, to a meter provider of OpenTelemetry, or to both."""

    def __init__(
        self, *, registry: CollectorRegistry | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        self.series = Series(it.FLEET)
        self._looked = -FRESH_SECONDS
        if registry is not None:
            from holdfast.telemetry.prometheus import SeriesCollector

            registry.register(SeriesCollector(self.series))
        if meter_provider is not None:
            from holdfast.telemetry.opentelemetry import SeriesMeter

            SeriesMeter(meter_provider, self.series)

    async def look(self, desk: Desk) -> None:
        """Read everything anew, unless that was done just now. A database that does not answer is a value too."""
        if time.monotonic() - self._looked < FRESH_SECONDS:
            return
        try:
            ready = await desk.ask(read_readiness())
            overview, subscriptions = await desk.overview(MINUTES), await desk.subscriptions()
        except Refused as exc:
            log.warning("the fleet cannot be measured", extra={"why": exc.code})
            self.series.replace({it.FLEET_UP: {(): 0.0}})
        else:
            self.series.replace(_values(ready, overview, subscriptions))
        self._looked = time.monotonic()

    async def watch(self, desk: Desk, every: timedelta = timedelta(seconds=15)) -> None:
        """Look again and again, for exporters that do not ask."""
        while True:
            await self.look(desk)
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
