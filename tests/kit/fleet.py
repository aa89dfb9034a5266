"""Runners as one process has them, without a worker around them."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._engine.application import Application
from holdfast._engine.keeper import Keeper
from holdfast._engine.report.transition import Transition, Transitions
from holdfast._engine.runner import BUILT_IN
from holdfast._engine.runners.builtin import RUN_NAMES, Minutes, assemble, in_background
from holdfast._engine.runners.database import RunnerDatabase, open_runner_database
from holdfast._model.databases import named
from holdfast._model.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    import psycopg

    from holdfast._engine.runner import PeriodicJob, Runner, TickFunction
    from holdfast._engine.runners.loop import Background
    from holdfast._engine.runners.ticker import Ticker

    Connect = Callable[..., psycopg.Connection[Any]]

# A safety net for tests that wait for a signal; nothing here takes this long.
SOON = 20.0
MS = timedelta(milliseconds=1)


def fast(**changes: Any) -> Settings:
    """Return settings whose times are scaled down."""
    given: dict[str, Any] = {
        "lease": 12_000 * MS,
        "heartbeat": 500 * MS,
        "reap_interval": 300 * MS,
        "shutdown_timeout": 500 * MS,
        "busy_delay": 1 * MS,
        "idle_min": 5 * MS,
        "idle_max": 20 * MS,
        "jitter": 1 * MS,
        "error_backoff": 20 * MS,
        "error_jitter": 1 * MS,
        "tick_overall_max": 20_000 * MS,
    }
    return Settings.load({}, **(given | changes))


def alone(*names: str) -> tuple[str, ...]:
    """Return the setting of a process that runs these runners and no others."""
    return (*names, *(f"-{name}" for name in BUILT_IN if name not in names))


class Crew(NamedTuple):
    database: RunnerDatabase
    ticker: Ticker
    runners: dict[str, Runner]
    reported: list[Transition]


@asynccontextmanager
async def crew(
    url: str,
    *runners: Runner,
    periodic: Sequence[PeriodicJob] = (),
    settings: Settings | None = None,
    state: Any = None,
    kinds: Any = None,
    outbox: TickFunction | None = None,
) -> AsyncIterator[Crew]:
    """The parts that are needed to run single ticks by hand."""
    reported: list[Transition] = []
    async with open_runner_database(url, name=f"test:{os.getpid()}", seconds=SOON) as database:
        ((ticker, made),) = assemble(
            _application(url, runners, periodic, settings or fast(), kinds=kinds),
            [database],
            state=state,
            transitions=Transitions("test", [reported.append]),
            outbox=outbox,
        )
        yield Crew(database, ticker, {runner.name: runner for runner in made}, reported)


@asynccontextmanager
async def background(
    url: str,
    *runners: Runner,
    names: Sequence[str] | None = None,
    periodic: Sequence[PeriodicJob] = (),
    settings: Settings | None = None,
    state: Any = None,
    counts: Mapping[str, int] = MappingProxyType({}),
) -> AsyncIterator[Background]:
    """These runners, and no others unless named, in loops."""
    chosen = tuple(runner.name for runner in runners) if names is None else tuple(names)
    settings = replace(settings or fast(), tick_runners=alone(*chosen))
    async with (
        open_runner_database(url, name=f"test:{os.getpid()}", seconds=SOON) as database,
        in_background(
            _application(url, runners, periodic, settings),
            database,
            home=True,
            state=state,
            transitions=Transitions("test", []),
            keeper=Keeper("test"),
            jobs=Minutes(database, "outbox", counts, names=RUN_NAMES),
            reaped=Minutes(database, "reaper", {}),
        ) as loops,
    ):
        yield loops


def _application(
    url: str, runners: Sequence[Runner], periodic: Sequence[PeriodicJob], settings: Settings, *, kinds: Any = None
) -> Application:
    return Application(
        databases=named([url]),
        settings=settings,
        kinds=kinds or {},
        runners={runner.name: runner for runner in runners},
        schedules={job.name: job for job in periodic},
    )


def runs(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return conn.execute("SELECT runner, outcome, counts, error_code FROM holdfast.run ORDER BY id").fetchall()


def schedule(conn: psycopg.Connection[Any], name: str, columns: str) -> tuple[Any, ...]:
    row = conn.execute(f"SELECT {columns} FROM holdfast.schedule WHERE name = %s".encode(), [name]).fetchone()
    assert row is not None
    return tuple(row)


def make_due(conn: psycopg.Connection[Any], name: str, *, ago: float = 0.0) -> None:
    """Let the next slot be now, or some seconds ago."""
    changed = conn.execute(
        "UPDATE holdfast.schedule SET next_at = clock_timestamp() - %s * interval '1 second' WHERE name = %s",
        [ago, name],
    )
    assert changed.rowcount == 1
