"""One-shot mode: the selected runners run once, in order, within budgets."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import Counter
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast._engine.keeper import Keeper
from holdfast._engine.link import LOST, Links
from holdfast._engine.report.hook import Hooks
from holdfast._engine.report.transition import Ticked, Transitions
from holdfast._engine.runners.builtin import MINUTE, OUTLASTED, UNLIMITED, assemble, summary
from holdfast._engine.runners.database import open_runner_database
from holdfast._engine.runners.ticker import Limits
from holdfast._engine.session import Session
from holdfast._engine.worker import Worker
from holdfast._logs.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._engine.application import Application, MakeRelaying
    from holdfast._engine.runner import Counts, Runner, Tick
    from holdfast._engine.runners.database import RunnerDatabase
    from holdfast._engine.runners.ticker import Ticker
    from holdfast._model.settings import Settings

# At most this many seconds, or a tenth of the whole time, are reserved to abort running jobs and write their outcomes.
ENDING = 5.0


@dataclass(frozen=True, slots=True)
class TickResult:
    """The result of each runner, in the order in which they ran."""

    runners: tuple[Ticked, ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        """1 when a runner failed or a job still ran at the end, else 0."""
        return int(any(ticked.outcome == "failed" or ticked.counts.get(OUTLASTED) for ticked in self.runners))


async def run_tick(application: Application) -> TickResult:
    """Run every selected runner once. A failure does not stop the next one. Cancelling stops it gracefully.

    Jobs that still run when the outbox's share of the time is used up continue beside the next runners, until the end
    of the whole tick. Jobs that run even longer fail, and their attempt counts.
    """
    settings, name = application.settings, f"{socket.gethostname()}:{os.getpid()}"
    names = application.selected
    started_at = time.monotonic()
    overall = settings.tick_overall_max.total_seconds()
    ends = started_at + overall
    done: list[Ticked] = []
    async with AsyncExitStack() as stack:
        state = await stack.enter_async_context(application.lifespan())
        application = replace(application, lifespan=lambda: nullcontext(state))
        hooks = Hooks(Keeper(name), on_failure=application.failure_hooks, on_dead_letter=application.dead_letter_hooks)
        await stack.enter_async_context(hooks)
        databases: list[RunnerDatabase] = []
        for place, url in application.databases.items():
            try:
                seconds = settings.lease.total_seconds()
                database = open_runner_database(url, name=name, seconds=seconds, database=place)
                databases.append(await stack.enter_async_context(database))
            except (*LOST, TimeoutError) as exc:
                done.append(Ticked(runner="*", outcome="failed", failure=Failure.of(exc), database=place))
        transitions = Transitions(name, [hooks, *application.listeners])
        make = application.relays
        tickers = assemble(
            application,
            databases,
            state=state,
            transitions=transitions,
            outbox=Outbox(application, ends=ends - min(ENDING, overall / 10)).tick,
            relay=None if make is None else lambda database: RelayOnce(make, database, transitions).tick,
        )
        done += await _in_turn(_in_order(names, tickers), settings, ends)
    return TickResult(tuple(done), time.monotonic() - started_at)


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
        return Ticked(runner=runner.name, outcome="skipped", why="no time left", database=ticker.database.name)
    share = timedelta(seconds=left) if runner.whole_tick else settings.tick_runner_max
    seconds = min(left, min(share, runner.max_runtime or share).total_seconds())
    # A runner whose jobs may run on ends by itself; its grace is for writing their outcomes.
    limits = Limits(settings.tick_runner_max_items, seconds, left + runner.grace if runner.runs_on else seconds)
    try:
        return await ticker.tick(runner, limits)
    except Exception as exc:  # noqa: BLE001 - whatever prevents a runner from running, the next one gets its turn
        return Ticked(runner=runner.name, outcome="failed", failure=Failure.of(exc), database=ticker.database.name)


def _in_order(names: Sequence[str], tickers: Sequence[tuple[Ticker, Sequence[Runner]]]) -> list[tuple[Ticker, Runner]]:
    return [
        (ticker, runner) for name in names for ticker, runners in tickers for runner in runners if runner.name == name
    ]


class RelayOnce:
    """Makes one pass over the event log of a database."""

    def __init__(self, make: MakeRelaying, database: RunnerDatabase, transitions: Transitions) -> None:
        links = Links(database.url, name=database.name, timeout=MINUTE.total_seconds())
        self._relaying = make(Session(links, database.row, Keeper(transitions.worker)), transitions)

    async def tick(self, tick: Tick) -> Counts:
        before = Counter(self._relaying.counts)
        try:
            return await self._relaying.drain(tick.budget)
        finally:
            tick.counts.update(Counter(self._relaying.counts) - before)


class Outbox:
    """Makes one pass over the due jobs, with a worker that claims nothing else."""

    def __init__(self, application: Application, *, ends: float) -> None:
        """Abort running jobs at `ends`, by the monotonic clock: the tick's budget only limits what is started."""
        self._application = application
        self._ends = ends

    async def tick(self, tick: Tick) -> Counts:
        async with Worker(self._application, background=False) as worker:
            left = tick.budget.seconds_left
            seconds = MINUTE.total_seconds() if left is None else left
            try:
                return summary(await worker.drain(tick.budget.limit(UNLIMITED), seconds=seconds, ends=self._ends))
            finally:
                # If a database failed, the counts are reported all the same.
                tick.counts.update(summary(worker.counts))
                # A handler that ignores its abort signal is not waited for.
                await worker.stop(at_once=True)
