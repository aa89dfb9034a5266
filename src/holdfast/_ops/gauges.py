"""The metrics of the fleet, read from its databases: queues, workers, limits, subscriptions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from holdfast._logs.log import Log
from holdfast._ops.caller import RequestRefused
from holdfast._ops.newest import FRESH_SECONDS, NewestReading
from holdfast._store.inspect import read_census
from holdfast._store.schema import read_readiness
from holdfast._telemetry import metrics as it
from holdfast._telemetry.metrics import Series

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.metrics import MeterProvider
    from prometheus_client.registry import CollectorRegistry

    from holdfast._ops.responses.fleet import QueueOverview
    from holdfast._ops.service import Service
    from holdfast._store.inspect import Census
    from holdfast._telemetry.metrics import Instrument, Labels

    Values: TypeAlias = dict[Instrument, dict[Labels, float]]

log = Log(__name__)

MINUTES = 5
# A scrape waits this many seconds for one of several databases.
PATIENCE_SECONDS = 3.0


class Gauges:
    """Gauges for a prometheus-client registry, an OpenTelemetry meter provider, or both."""

    def __init__(
        self,
        *,
        registry: CollectorRegistry | None = None,
        meter_provider: MeterProvider | None = None,
        fresh: float = FRESH_SECONDS,
    ) -> None:
        """`fresh`: scrapes within this many seconds share one result. Default: 1."""
        self.series = Series(it.FLEET)
        self._fresh = fresh
        self._newest: dict[str, NewestReading[Values]] = {}
        if registry is not None:
            from holdfast._telemetry.prometheus import SeriesCollector

            registry.register(SeriesCollector(self.series))
        if meter_provider is not None:
            from holdfast._telemetry.opentelemetry import SeriesMeter

            SeriesMeter(meter_provider, self.series)

    async def look(self, services: Mapping[str, Service]) -> None:
        """Read all values, unless they are fresh, from all databases at once. For one that does not answer, `up` is 0.

        `services`: by name, which becomes the label `database`; the name is empty if there is only one.
        """
        measured = await asyncio.gather(*(self._measure(name, service) for name, service in services.items()))
        found: Values = defaultdict(dict)
        for name, values in zip(services, measured, strict=True):
            database = (name,) if name else ()
            for instrument, numbers in values.items():
                found[instrument].update({(*labels, *database): number for labels, number in numbers.items()})
        self.series.replace(found)

    async def _measure(self, name: str, service: Service) -> Values:
        patience = PATIENCE_SECONDS if name else None
        newest = self._newest.setdefault(name, NewestReading(fresh=self._fresh, patience=patience))
        try:
            return await newest.get(lambda: _measured(service))
        except RequestRefused as exc:
            log.warning("the fleet cannot be measured", extra={"why": exc.code, **({"database": name} if name else {})})
            return {it.FLEET_UP: {(): 0.0}}

    async def watch(self, services: Mapping[str, Service], every: timedelta = timedelta(seconds=15)) -> None:
        """Refresh the values periodically, for exporters that push."""
        while True:
            await self.look(services)
            await asyncio.sleep(every.total_seconds())


async def _measured(service: Service) -> Values:
    ready = await service.run(read_readiness())
    overview, subscriptions = await service.overview(MINUTES), await service.subscriptions()
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
    for problem in overview.problems:
        found[it.PROBLEM][problem.code, problem.severity, problem.title] = 1.0
    for kind in overview.unserved:
        found[it.KIND_UNSERVED][kind.queue, kind.kind] = kind.due
    for limit in (await service.limits()).items:
        found[it.LIMIT_RUNNING][limit.name,] = limit.running
        found[it.LIMIT_WAITING][limit.name,] = limit.waiting
        found[it.LIMIT_OLDEST][limit.name,] = limit.oldest_seconds or 0.0
    _stories(found, await service.run(read_census()))
    for line in subscriptions.items:
        found[it.SUBSCRIPTION_LAG][line.name,] = line.lag_events
        found[it.SUBSCRIPTION_AGE][line.name,] = line.lag_seconds
        found[it.SUBSCRIPTION_PARKED][line.name,] = line.parked
    return found


def _stories(found: Values, census: Census) -> None:
    for line in census.lines:
        if line.oldest_story_at is not None:
            counts, ages = found[it.STORY_SUSPENDED], found[it.STORY_OLDEST]
            counts[line.kind,] = counts.get((line.kind,), 0.0) + line.stories
            age = max(0.0, (census.now - line.oldest_story_at).total_seconds())
            ages[line.kind,] = max(ages.get((line.kind,), 0.0), age)


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
    for percentile in ("p50", "p95", "p99"):
        for instrument, times in ((it.QUEUE_WAIT, queue.waiting), (it.QUEUE_RUN, queue.running)):
            if (seconds := getattr(times, percentile)) is not None:
                found[instrument][name, percentile] = seconds
