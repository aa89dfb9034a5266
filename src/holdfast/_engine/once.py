"""One-shot mode: the selected runners run once, in order, within budgets."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from holdfast._engine.jobs.heartbeat import database_of
from holdfast._engine.link import LOST
from holdfast._engine.report.hook import Hooks
from holdfast._engine.report.transition import Ticked, Transitions
from holdfast._engine.runners.builtin import OUTLASTED, assemble
from holdfast._engine.runners.database import RunnerDatabase, open_site
from holdfast._engine.runners.relaying import RelayOnce
from holdfast._engine.runners.runner import Runner, selected
from holdfast._engine.runners.ticker import Limits
from holdfast._engine.worker import Worker
from holdfast._logs.failure import Failure
from holdfast._model.errors import HoldfastError
from holdfast._model.kind import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast._engine.jobs.handlers import Middleware
    from holdfast._engine.report.hook import Hook
    from holdfast._engine.report.transition import Listener
    from holdfast._engine.runners.relaying import MakeRelaying
    from holdfast._engine.runners.runner import PeriodicJob, TickFunction
    from holdfast._engine.runners.ticker import Ticker
    from holdfast._model.codec import JsonCodec
    from holdfast._model.settings import Settings
from typing import TYPE_CHECKING

from holdfast._engine.runners.builtin import MINUTE, UNLIMITED, summary
from holdfast._engine.runners.runner import PeriodicJob
from holdfast._engine.runners.ticker import Ticker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast._engine.runners.database import RunnerDatabase
    from holdfast._engine.runners.runner import Counts, Tick, TickFunction
    from holdfast._model.settings import Settings


# At most this many seconds, or a tenth of the whole time, are reserved to abort running jobs and write their outcomes.
ENDING = 5.0


class Application(Protocol):
    """The part of an application that a tick needs: the engine must not import Holdfast, which is on a higher layer."""

    url: str | None
    codec: JsonCodec
    middlewares: list[Middleware]
    listeners: list[Listener]
    failure_hooks: list[Hook]
    dead_letter_hooks: list[Hook]
    lifespan: Any

    @property
    def kinds(self) -> Mapping[str, Any]: ...
    @property
    def runners(self) -> Mapping[str, Runner]: ...
    @property
    def schedules(self) -> Mapping[str, PeriodicJob]: ...
    def relays(self, settings: Settings) -> MakeRelaying | None: ...


@dataclass(frozen=True, slots=True)
class TickResult:
    """The result of each runner, in the order in which they ran."""

    runners: tuple[Ticked, ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        """1 when a runner failed or a job still ran at the end, else 0."""
        return int(any(ticked.outcome == "failed" or ticked.counts.get(OUTLASTED) for ticked in self.runners))


async def run_tick(app: Application, settings: Settings, *, url: str | None = None) -> TickResult:
    """Run every selected runner once. A failure does not stop the next one. Cancelling stops it gracefully.

    Jobs that still run when the outbox's share of the time is used up continue beside the next runners, until the end
    of the whole tick. Jobs that run even longer fail, and their attempt counts.
    `url`: the database to serve instead of the application's own.
    """
    names = selected(settings.tick_runners, app.runners)
    named = url or app.url
    urls = [named] if named else list(settings.database_urls)
    if not urls:
        raise HoldfastError("no database: give Holdfast an address, or set HOLDFAST_DATABASE_URL")
    begun = time.monotonic()
    overall = settings.tick_overall_max.total_seconds()
    ends = begun + overall
    done: list[Ticked] = []
    async with AsyncExitStack() as stack:
        state = await stack.enter_async_context(nullcontext() if app.lifespan is None else app.lifespan(app))
        hooks = Hooks(_name(), on_failure=app.failure_hooks, on_dead_letter=app.dead_letter_hooks)
        await stack.enter_async_context(hooks)
        sites: list[RunnerDatabase] = []
        for each in urls:
            try:
                site = open_site(each, name=_name(), seconds=settings.lease.total_seconds())
                sites.append(await stack.enter_async_context(site))
            except (*LOST, TimeoutError) as exc:
                done.append(Ticked(runner="*", outcome="failed", failure=Failure.of(exc), database=database_of(each)))
        transitions = Transitions(_name(), app.listeners)
        tickers = assemble(
            names,
            sites,
            home=next((site for site in sites if site.url == urls[0]), None),
            runners=app.runners,
            periodic=list(app.schedules.values()),
            kinds=_kinds(app),
            settings=settings,
            state=state,
            transitions=transitions,
            hooks=hooks,
            outbox=Outbox(lambda: _worker(app, urls, settings, state), ends=ends - min(ENDING, overall / 10)).tick,
            relay=None if (make := app.relays(settings)) is None else partial(_relay_once, make, transitions),
        )
        done += await _in_turn(_in_order(names, tickers), settings, ends)
    return TickResult(tuple(done), time.monotonic() - begun)


async def _in_turn(order: Sequence[tuple[Ticker, Runner]], settings: Settings, ends: float) -> list[Ticked]:
    turns = []
    async with asyncio.TaskGroup() as group:
        for ticker, runner in order:
            turns.append(turn := group.create_task(_once(ticker, runner, settings, ends)))
            share = min(settings.tick_runner_max.total_seconds(), max(0.0, ends - time.monotonic()))
            await asyncio.wait({turn}, timeout=share if runner.runs_on else None)
    return [turn.result() for turn in turns]


async def _once(ticker: Ticker, runner: Runner, settings: Settings, ends: float) -> Ticked:
    left = ends - time.monotonic()
    if left <= 0:
        return Ticked(runner=runner.name, outcome="skipped", why="no time left", database=ticker.site.name)
    longest = min(settings.tick_runner_max, runner.max_runtime or settings.tick_runner_max)
    seconds = min(left, longest.total_seconds())
    # A runner whose jobs may run on ends by itself; its grace is for writing their outcomes.
    limits = Limits(settings.tick_runner_max_items, seconds, left + runner.grace if runner.runs_on else seconds)
    try:
        return await ticker.tick(runner, limits)
    except Exception as exc:  # noqa: BLE001 - whatever prevents a runner from running, the next one gets its turn
        return Ticked(runner=runner.name, outcome="failed", failure=Failure.of(exc), database=ticker.site.name)


def _in_order(names: Sequence[str], tickers: Sequence[tuple[Ticker, Sequence[Runner]]]) -> list[tuple[Ticker, Runner]]:
    return [
        (ticker, runner) for name in names for ticker, runners in tickers for runner in runners if runner.name == name
    ]


def _relay_once(make: MakeRelaying, transitions: Transitions, site: RunnerDatabase) -> TickFunction:
    relaying = make(site.url, worker=lambda: site.worker, heard=lambda: False, transitions=transitions)
    return RelayOnce(relaying).tick


def _worker(app: Application, urls: Sequence[str], settings: Settings, state: Any) -> Worker:
    return Worker(
        urls,
        settings=settings,
        kinds=_kinds(app),
        codec=app.codec,
        lifespan=lambda: nullcontext(state),
        middlewares=app.middlewares,
        listeners=app.listeners,
        on_failure=app.failure_hooks,
        on_dead_letter=app.dead_letter_hooks,
        claiming=False,
    )


def _kinds(app: Application) -> dict[str, Kind[..., Any]]:
    return {name: kind for name, kind in app.kinds.items() if isinstance(kind, Kind)}


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


class Outbox:
    """Makes one pass over the due jobs, with a worker that claims nothing else."""

    def __init__(self, worker: Callable[[], Worker], *, ends: float) -> None:
        """Abort running jobs at `ends`, by the monotonic clock: the tick's budget only limits what is started."""
        self._worker = worker
        self._ends = ends

    async def tick(self, tick: Tick) -> Counts:
        async with self._worker() as worker:
            left = tick.budget.seconds_left
            seconds = MINUTE.total_seconds() if left is None else left
            try:
                return summary(await worker.drain(tick.budget.most(UNLIMITED), seconds=seconds, ends=self._ends))
            finally:
                # If a database failed, the counts are reported all the same.
                tick.counts.update(summary(worker.counts))
                # A handler that ignores its abort signal is not waited for.
                await worker.stop(at_once=True)
