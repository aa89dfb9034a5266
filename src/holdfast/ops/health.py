"""Whether a process is alive, whether it is ready, and its metrics: /live, /ready and /metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from starlette.responses import PlainTextResponse, Response

from holdfast.errors import HoldfastError
from holdfast.ops.answer import Answer
from holdfast.ops.refusal import Refused
from holdfast.store.readiness import check_schema, read_readiness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from datetime import timedelta

    from prometheus_client.registry import CollectorRegistry

    from holdfast.engine.keeper import LoopVitals
    from holdfast.engine.vitals import Vitals
    from holdfast.ops.desk import Desk
    from holdfast.ops.gauges import Gauges
    from holdfast.store.readiness import Readiness

# So many of the reaper's intervals may pass without it.
REAP_INTERVALS = 3
# `maintenance` runs every minute; so many seconds may pass without it.
UNMAINTAINED_SECONDS = 300.0
# So many heartbeats may pass while endings wait and none is written.
WRITE_HEARTBEATS = 3
# A statement ends within a lease, answered or not. A loop that is late by more than that many does not turn.
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
    """Answer at all: whoever serves pages is alive when it can."""
    return said_live(Live())


async def ready(desk: Desk, *, reap_interval: timedelta) -> Response:
    """Answer 200 when the database is there and migrated, a worker lives, and somebody reaps; else 503, and why."""
    return said_ready([trouble async for trouble in _troubles(desk, reap_interval.total_seconds())])


async def metrics(desk: Desk, gauges: Gauges, registry: CollectorRegistry, accept: str) -> Response:
    """Answer with all that the registry has, the gauges of the fleet read anew."""
    await gauges.look(desk)
    return exposition(registry, accept)


def exposition(registry: CollectorRegistry, accept: str) -> Response:
    from holdfast.telemetry.prometheus import render

    body, media_type = render(registry, accept)
    return PlainTextResponse(body, media_type=media_type)


def said_live(found: Live) -> Response:
    return Response(found.model_dump_json(), 200 if found.live else 503, media_type=_JSON)


def said_ready(problems: Sequence[Trouble]) -> Response:
    found = Ready(ready=not problems, problems=list(problems))
    return Response(found.model_dump_json(), 503 if problems else 200, media_type=_JSON)


def said_worker_ready(problems: Sequence[Trouble], vitals: Sequence[Vitals], loops: Sequence[LoopVitals]) -> Response:
    """Answer for one worker. `loops`: those that belong to no single database."""
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
    """Say what keeps a worker from working, from what it knows itself.

    `loops`: those that belong to no single database.
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


async def _troubles(desk: Desk, interval: float) -> AsyncIterator[Trouble]:
    try:
        await desk.ask(check_schema())
        found = await desk.ask(read_readiness())
    except HoldfastError as exc:
        # Missing, too old, or migrated by a version that this code does not know.
        yield Trouble(code="schema_not_migrated", text=str(exc), deployment_blocker=True)
    except Refused as exc:
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
            "dropped. See WORKER_TICK_RUNNERS.",
            deployment_blocker=True,
        )
