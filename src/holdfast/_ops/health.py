"""Liveness, readiness and metrics of a process: /live, /ready and /metrics."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, TypeAlias

from starlette.responses import PlainTextResponse, Response

from holdfast._distribution import missing
from holdfast._model.errors import HoldfastError
from holdfast._ops.caller import RequestRefused
from holdfast._ops.gauges import PATIENCE_SECONDS, Gauges
from holdfast._ops.newest import NewestReading
from holdfast._store.answer import Answer
from holdfast._store.schema import check_schema, read_readiness
from holdfast._telemetry.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import timedelta

    from prometheus_client.registry import CollectorRegistry

    from holdfast._app.app import Holdfast
    from holdfast._engine.jobs.heartbeat import Vitals
    from holdfast._engine.keeper import LoopVitals
    from holdfast._ops.service import Service
    from holdfast._store.schema import Readiness


# The reaper is late after this many of its intervals.
REAP_INTERVALS = 3
# `maintenance` runs every minute. It is late after this many seconds.
UNMAINTAINED_SECONDS = 300.0
# Results that are still unwritten after this many heartbeats are a problem.
WRITE_HEARTBEATS = 3
# A statement ends within one lease, answered or not. A loop late by more than this many leases is stalled.
LATE_LEASES = 2


class Live(Answer):
    """This process answers."""

    live: bool = True
    text: str = ""


TroubleCode: TypeAlias = Literal[
    "database_unreachable", "schema_not_migrated", "no_worker", "no_reaper", "no_maintenance", "starting", "stopping",
    "loop_ended", "loop_stalled", "endings_unwritten",
]  # fmt: skip


class Trouble(Answer):
    """Why something is not ready."""

    code: TroubleCode
    text: str
    database: str | None = None
    loop: str | None = None
    """The loop of the worker that it is about."""
    deployment_blocker: bool = False
    """True: it does not pass by itself, and jobs may be left lying."""


class Ready(Answer):
    ready: bool
    problems: list[Trouble]
    """With several databases, those of one leave the others ready."""


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
    return live_response(Live())


def exposition(registry: CollectorRegistry, accept: str) -> Response:
    from holdfast._telemetry.prometheus import render

    body, media_type = render(registry, accept)
    return PlainTextResponse(body, media_type=media_type)


def live_response(found: Live) -> Response:
    return _response(found, ok=found.live)


def ready_response(problems: Sequence[Trouble], databases: Collection[str] = ()) -> Response:
    """Answer for these databases, by name; without names, every problem counts."""
    ready = _is_ready(problems, databases)
    return _response(Ready(ready=ready, problems=list(problems)), ok=ready)


def worker_ready_response(
    problems: Sequence[Trouble], vitals: Sequence[Vitals], loops: Sequence[LoopVitals]
) -> Response:
    """Answer for one worker. `loops` are those that belong to no single database."""
    turns = [_turn(loop) for loop in loops] + [_turn(loop, of.database) for of in vitals for loop in of.loops]
    ready = _is_ready(problems, [of.database for of in vitals])
    return _response(WorkerReady(ready=ready, problems=list(problems), loops=turns), ok=ready)


def _response(found: Answer, *, ok: bool) -> Response:
    return Response(found.model_dump_json(), 200 if ok else 503, media_type="application/json")


def _is_ready(problems: Sequence[Trouble], databases: Collection[str]) -> bool:
    """Return whether at least one database has no problem, and nothing that concerns all of them has one.

    One of several databases that is away must not stop a rollout, or take every worker away from the others.
    """
    if any(trouble.database is None for trouble in problems):
        return False
    return not problems or bool(set(databases) - {trouble.database for trouble in problems})


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


async def troubles(service: Service, interval: float) -> list[Trouble]:
    """Return why the jobs of this database are not worked on. `interval`: of the reaper, in seconds."""
    try:
        await service.run(check_schema())
        found = await service.run(read_readiness())
    except HoldfastError as exc:
        # Missing, too old, or migrated by a newer version.
        return [Trouble(code="schema_not_migrated", text=str(exc), deployment_blocker=True)]
    except RequestRefused as exc:
        missing = exc.code == "not_migrated"
        code: TroubleCode = "schema_not_migrated" if missing else "database_unreachable"
        return [Trouble(code=code, text=exc.message, deployment_blocker=missing)]
    return [*_troubles_of_fleet(found, interval)]


def _troubles_of_fleet(found: Readiness, interval: float) -> Iterator[Trouble]:
    longest = REAP_INTERVALS * interval
    if not found.live:
        text = "No worker is alive: start one with `holdfast worker`."
        yield Trouble(code="no_worker", text=text, deployment_blocker=True)
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


class Probes:
    """The answers to /ready and /metrics, over all databases.

    `services` are by name; the name is empty if there is only one database.
    """

    def __init__(self, app: Holdfast | None, reap_interval: timedelta) -> None:
        self._app = app
        self._reap_interval = reap_interval.total_seconds()
        self._measured: tuple[CollectorRegistry, Gauges] | None = None
        self._newest: dict[str, NewestReading[list[Trouble]]] = {}

    async def ready(self, services: Mapping[str, Service]) -> Response:
        """Answer 200 with the problems if one database has none, otherwise 503.

        A database has none if its schema is current, workers are alive and leases are reaped.
        A database is queried at most once a second, because this endpoint needs no authentication.
        """
        found = await asyncio.gather(*(self._troubles(name, service) for name, service in services.items()))
        return ready_response([trouble for troubles in found for trouble in troubles], services)

    async def _troubles(self, name: str, service: Service) -> list[Trouble]:
        newest = self._newest.setdefault(name, NewestReading(patience=PATIENCE_SECONDS if name else None))
        try:
            found = await newest.get(lambda: troubles(service, self._reap_interval))
        except RequestRefused as exc:
            found = [Trouble(code="database_unreachable", text=exc.message)]
        return [trouble.model_copy(update={"database": name or None}) for trouble in found]

    async def metrics(self, services: Mapping[str, Service], headers: Mapping[str, str]) -> Response:
        """Answer with the metrics, after a refresh of the fleet's gauges."""
        if find_spec("prometheus_client") is None:
            raise RequestRefused(404, "not_installed", missing("/metrics", "prometheus", "prometheus_client") + ".")
        if self._measured is None:
            self._measured = _measured(self._app)
        registry, gauges = self._measured
        await gauges.look(services)
        return exposition(registry, headers.get("accept", ""))


def _measured(app: Holdfast | None) -> tuple[CollectorRegistry, Gauges]:
    """Return a new registry with the fleet's gauges and the metrics of the application's workers in this process."""
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry()
    listeners = [] if app is None else app.listeners
    for listener in listeners:
        if isinstance(listener, Telemetry) and listener.registry is not None:
            registry.register(listener.registry)
    return registry, Gauges(registry=registry)
