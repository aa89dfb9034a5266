"""Liveness, readiness and metrics of a process: /live, /ready and /metrics."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, TypeAlias

from starlette.responses import PlainTextResponse, Response

from holdfast._distribution import missing
from holdfast._logs.log import Log
from holdfast._model.errors import HoldfastError
from holdfast._ops.caller import RequestRefused
from holdfast._ops.responses.job import Answer
from holdfast._store.schema import check_schema, read_readiness
from holdfast._telemetry import metrics as it
from holdfast._telemetry.metrics import Series
from holdfast._telemetry.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from opentelemetry.metrics import MeterProvider
    from prometheus_client.registry import CollectorRegistry

    from holdfast._app.app import Holdfast
    from holdfast._engine.jobs.heartbeat import Vitals
    from holdfast._engine.keeper import LoopVitals
    from holdfast._ops.responses.fleet import Overview, QueueOverview, Subscriptions
    from holdfast._ops.service import Service
    from holdfast._store.schema import Readiness
    from holdfast._telemetry.metrics import Instrument, Labels

    Values: TypeAlias = dict[Instrument, dict[Labels, float]]


# The reaper is late after this many of its intervals.
REAP_INTERVALS = 3
# `maintenance` runs every minute. It is late after this many seconds.
UNMAINTAINED_SECONDS = 300.0
# Results that are still unwritten after this many heartbeats are a problem.
WRITE_HEARTBEATS = 3
# A statement ends within one lease, answered or not. A loop late by more than this many leases is stalled.
LATE_LEASES = 2
_JSON = "application/json"


class Live(Answer):
    """This process answers."""

    live: bool = True
    text: str = ""


class Trouble(Answer):
    """Why something is not ready."""

    code: Literal[
        "database_unreachable", "schema_not_migrated", "no_worker", "no_reaper", "no_maintenance", "starting",
        "stopping", "loop_ended", "loop_stalled", "endings_unwritten",
    ]  # fmt: skip
    text: str
    database: str | None = None
    loop: str | None = None
    """The loop of the worker that it is about."""
    deployment_blocker: bool = False
    """True: it does not pass by itself, and jobs may be left lying."""


class Ready(Answer):
    ready: bool
    problems: list[Trouble]


class LoopTurn(Answer):
    """When a loop of a worker last turned."""

    loop: str
    database: str | None = None
    running: bool
    turned: float
    """Seconds since its last turn."""
    ends: int
    """How often it has ended and was started again."""


class WorkerReady(Ready):
    """Whether one worker is ready, and how its loops are."""

    loops: list[LoopTurn]


async def live() -> Response:
    """Answer 200: a process that answers is alive."""
    return said_live(Live())


async def ready(service: Service, *, reap_interval: timedelta) -> Response:
    """Answer 200 if the schema is current, a worker is alive and leases are reaped; otherwise 503 with the problems."""
    return said_ready([trouble async for trouble in _troubles(service, reap_interval.total_seconds())])


async def metrics(service: Service, gauges: Gauges, registry: CollectorRegistry, accept: str) -> Response:
    """Answer with the registry's metrics, after a refresh of the fleet's gauges."""
    await gauges.look(service)
    return exposition(registry, accept)


def exposition(registry: CollectorRegistry, accept: str) -> Response:
    from holdfast._telemetry.prometheus import render

    body, media_type = render(registry, accept)
    return PlainTextResponse(body, media_type=media_type)


def said_live(found: Live) -> Response:
    return Response(found.model_dump_json(), 200 if found.live else 503, media_type=_JSON)


def said_ready(problems: Sequence[Trouble]) -> Response:
    found = Ready(ready=not problems, problems=list(problems))
    return Response(found.model_dump_json(), 503 if problems else 200, media_type=_JSON)


def said_worker_ready(problems: Sequence[Trouble], vitals: Sequence[Vitals], loops: Sequence[LoopVitals]) -> Response:
    """Answer for one worker. `loops` are those that belong to no single database."""
    turns = [_turn(loop) for loop in loops] + [_turn(loop, of.database) for of in vitals for loop in of.loops]
    found = WorkerReady(ready=not problems, problems=list(problems), loops=turns)
    return Response(found.model_dump_json(), 503 if problems else 200, media_type=_JSON)


def _turn(loop: LoopVitals, database: str | None = None) -> LoopTurn:
    return LoopTurn(
        loop=loop.name, database=database, running=loop.running, turned=round(loop.turned, 3), ends=loop.ends
    )


def troubles_of_worker(
    vitals: Sequence[Vitals],
    loops: Sequence[LoopVitals] = (),
    *,
    heartbeat: timedelta,
    reap_interval: timedelta,
    lease: timedelta,
) -> Iterator[Trouble]:
    """Yield the problems of a worker, from its own measurements.

    `loops` are those that belong to no single database.
    """
    yield from _troubles_of_loops(loops, lease)
    for of in vitals:
        if of.beat is None or of.beat > 1.5 * heartbeat.total_seconds() + 0.5:
            since = "has not answered yet" if of.beat is None else f"has not answered for {of.beat:.0f} s"
            yield Trouble(code="database_unreachable", text=f"The database {since}.", database=of.database)
        elif of.reap is not None and of.reap > REAP_INTERVALS * reap_interval.total_seconds():
            yield Trouble(
                code="no_reaper",
                text=f"This worker has not reaped for {of.reap:.0f} s.",
                database=of.database,
                deployment_blocker=True,
            )
            yield from _troubles_of_loops(of.loops, lease, of.database)
        else:
            if of.unwritten > WRITE_HEARTBEATS * heartbeat.total_seconds():
                yield Trouble(
                    code="endings_unwritten",
                    text=f"Jobs have ended, and for {of.unwritten:.0f} s none of their endings was written.",
                    database=of.database,
                    loop="finisher",
                )
            yield from _troubles_of_loops(of.loops, lease, of.database)


def _troubles_of_loops(loops: Sequence[LoopVitals], lease: timedelta, database: str | None = None) -> Iterator[Trouble]:
    for loop in loops:
        if not loop.running:
            yield Trouble(
                code="loop_ended",
                text=f"The loop {loop.name} has ended {loop.ends} times, and is being started again. See the log.",
                database=database,
                loop=loop.name,
                deployment_blocker=loop.broken,
            )
        elif loop.late > LATE_LEASES * lease.total_seconds():
            yield Trouble(
                code="loop_stalled",
                text=f"The loop {loop.name} has not turned for {loop.turned:.0f} s.",
                database=database,
                loop=loop.name,
            )


async def _troubles(service: Service, interval: float) -> AsyncIterator[Trouble]:
    try:
        await service.run(check_schema())
        found = await service.run(read_readiness())
    except HoldfastError as exc:
        # Missing, too old, or migrated by a newer version.
        yield Trouble(code="schema_not_migrated", text=str(exc), deployment_blocker=True)
    except RequestRefused as exc:
        missing = exc.code == "not_migrated"
        yield Trouble(
            code="schema_not_migrated" if missing else "database_unreachable",
            text=exc.message,
            deployment_blocker=missing,
        )
    else:
        for trouble in _troubles_of_fleet(found, interval):
            yield trouble


def _troubles_of_fleet(found: Readiness, interval: float) -> Iterator[Trouble]:
    longest = REAP_INTERVALS * interval
    if not found.live:
        yield Trouble(code="no_worker", text="No worker is alive: start one with `holdfast worker`.")
    elif (found.reaped is None or found.reaped > longest) and (found.started or 0.0) > longest:
        yield Trouble(
            code="no_reaper",
            text=f"No live worker has reaped within {longest:.0f} s: jobs of a worker that dies would wait for ever.",
            deployment_blocker=True,
        )
    late = found.started if found.unmaintained is None else found.unmaintained
    if found.live and min(late or 0.0, found.started or 0.0) > UNMAINTAINED_SECONDS:
        yield Trouble(
            code="no_maintenance",
            text=f"No live worker has run `maintenance` for {late:.0f} s: partitions are neither made ahead nor "
            "dropped. See HOLDFAST_TICK_RUNNERS.",
            deployment_blocker=True,
        )


FRESH = 1.0
"""Seconds for which a readiness answer is cached."""


class Probes:
    def __init__(self, app: Holdfast | None, reap_interval: timedelta) -> None:
        self._app = app
        self._reap_interval = reap_interval
        self._measured: tuple[CollectorRegistry, Gauges] | None = None
        self._asking: asyncio.Task[Response] | None = None
        self._asked = -FRESH

    async def ready(self, service: Service) -> Response:
        """Query the database at most once a second, because this endpoint needs no authentication."""
        now, loop = time.monotonic(), asyncio.get_running_loop()
        asking = self._asking
        if asking is None or asking.get_loop() is not loop or (asking.done() and now - self._asked >= FRESH):
            self._asked = now
            asking = self._asking = asyncio.create_task(ready(service, reap_interval=self._reap_interval))
        return await asyncio.shield(asking)

    async def metrics(self, service: Service, headers: Mapping[str, str]) -> Response:
        if find_spec("prometheus_client") is None:
            raise RequestRefused(404, "not_installed", missing("/metrics", "prometheus", "prometheus_client") + ".")
        if self._measured is None:
            self._measured = _measured(self._app)
        registry, gauges = self._measured
        return await metrics(service, gauges, registry, headers.get("accept", ""))


def _measured(app: Holdfast | None) -> tuple[CollectorRegistry, Gauges]:
    """Return a new registry with the fleet's gauges and the metrics of the application's workers in this process."""
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry()
    listeners = [] if app is None else app.listeners
    for listener in listeners:
        if isinstance(listener, Telemetry) and listener.registry is not None:
            registry.register(listener.registry)
    return registry, Gauges(registry=registry)


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
            ready = await service.run(read_readiness())
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
