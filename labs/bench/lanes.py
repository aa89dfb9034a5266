"""The cost of empty claims by the number of kinds and queues, and a trickle of jobs through many queues.

Jobs of every kind wait for tomorrow. CPU is of the backend, from /proc, over as many calls as make it precise enough.
"""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast._drivers import run_sync
from holdfast._store.claim import REACHES
from labs.bench.application import many, of_many
from labs.bench.cpu import cpu_seconds, time_on_cpu
from labs.bench.explain import explained
from labs.bench.figure import Figure, Section, table
from labs.bench.fleet import kept
from labs.bench.ground import checkpoint, connected, ground, progress
from labs.bench.load import load_jobs
from labs.bench.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast._store.statement import Statement

WITHIN = 2.0
CASES = ((1, 1), (100, 1), (10_000, 1), (100, 100), (1_000, 1_000))
"""Kinds and queues."""
SLOTS = 10
WAITING = 10_000
TOMORROW = "now() + interval '1 day' + i * interval '1 millisecond'"
ROUNDS = 5
# A round of one case takes so much processor time, or so many calls if that is not reached.
CPU_SECONDS = 0.25
MOST_CALLS = 2_000
LONGEST_STATEMENT = "10s"
PERCENT = 1.0
TRICKLE_SECONDS = 20.0
WARM_SECONDS = 5.0
PER_SECOND = 10
STARTED_WITHIN = 30.0


@dataclass(frozen=True, slots=True)
class Look:
    """One call that finds nothing, of one case."""

    seconds: float
    buffers: float


def measure(scale: float) -> Section:
    looks = _looks(max(2, round(ROUNDS * scale)))
    figures, rows = [], []
    for name in ("claim", "look ahead"):
        for dimension, subset in (("kinds", CASES[:3]), ("queues", (CASES[0], *CASES[3:]))):
            costs = [looks[name, case].seconds for case in subset]
            figures.append(
                Figure(
                    f"empty {name}: server CPU over the {dimension}, against the least",
                    max(costs) / min(costs),
                    limit=WITHIN,
                )
            )
    for case in CASES:
        kinds, queues = case
        costs_of_both = [looks[name, case] for name in ("claim", "look ahead")]
        cells = [cell for look in costs_of_both for cell in (f"{1e3 * look.seconds:.2f}", f"{look.buffers:,.0f}")]
        rows.append((f"{kinds:,}", f"{queues:,}", *cells))
    progress("lanes: a trickle")
    share, rate = trickle(max(5.0, TRICKLE_SECONDS * scale))
    figures.append(
        Figure(
            "ten jobs a second, 100 kinds in 10 queues: server CPU of the worker", 100 * share, limit=PERCENT, unit=" %"
        )
    )
    figures.append(Figure("ten jobs a second: finished", rate, unit=" jobs/s"))
    head = ("kinds", "queues", "empty claim, ms of CPU", "buffers", "look ahead, ms of CPU", "buffers")
    return Section(figures, [table(head, rows)])


def _looks(rounds: int) -> dict[tuple[str, tuple[int, int]], Look]:
    found: defaultdict[tuple[str, tuple[int, int]], list[Look]] = defaultdict(list)
    with ground(autovacuum="off") as base, ExitStack() as stack:
        workers = {}
        for case in CASES:
            progress(f"lanes: {case[0]:,} kinds in {case[1]:,} queues")
            conn = stack.enter_context(connected(stack.enter_context(base.database())))
            workers[case] = _worker(conn, *case)
        for number in range(rounds):
            progress(f"lanes: round {number + 1}")
            for case, worker in workers.items():
                if math.inf not in (look.seconds for look in found["claim", case]):
                    found["claim", case].append(_look(worker, lambda: worker.statement(SLOTS, REACHES[0])))  # noqa: B023
                    found["look ahead", case].append(_look(worker, worker.look_ahead))
    return {
        key: Look(median(look.seconds for look in looks), median(look.buffers for look in looks))
        for key, looks in found.items()
    }


def _worker(conn: psycopg.Connection[Any], kinds: int, queues: int) -> Worker:
    names = [f"bench.kind{number}" for number in range(kinds)]
    places = [f"queue{number}" for number in range(queues)]
    load_jobs(conn, WAITING, kinds=names, queues=places, due=TOMORROW)
    conn.execute("VACUUM ANALYZE holdfast.job", prepare=False)
    checkpoint(conn)
    conn.execute(f"SET statement_timeout = '{LONGEST_STATEMENT}'".encode())
    return Worker(conn, kinds=names, queues=places)


def _look(worker: Worker, make: Callable[[], Statement[Any]]) -> Look:
    """Run the statement repeatedly. A run longer than the longest time counts as unbounded."""
    conn, pid = worker.conn, worker.conn.info.backend_pid
    # Only the server is measured: the statement is built once, and its rows are not parsed.
    statement = make()._replace(read=lambda rows: rows)
    try:
        # The first of a connection also reads the catalogue.
        buffers = [run_sync(conn, explained(statement)).buffers for _ in range(2)][-1]
        begun, calls = cpu_seconds(pid), 0
        while cpu_seconds(pid) - begun < CPU_SECONDS and calls < MOST_CALLS:
            run_sync(conn, statement)
            calls += 1
        return Look((cpu_seconds(pid) - begun) / calls, buffers)
    except psycopg.errors.QueryCanceled:
        return Look(math.inf, math.inf)


def trickle(seconds: float) -> tuple[float, float]:
    """Return the share of a core that the worker's backends used, and how many jobs were finished per second."""
    with ground(autovacuum="on") as base, base.database() as url, connected(url) as conn, _worker_process(url):
        _wait(conn, "SELECT count(*) > 0 FROM holdfast.worker")
        asyncio.run(_enqueue(url, WARM_SECONDS))  # what a start costs is not the trickle's
        before, done, begun = _backends(conn), kept(conn), time.monotonic()
        asyncio.run(_enqueue(url, seconds))
        passed = time.monotonic() - begun
        after = _backends(conn)
        used = sum(cpu - before.get(pid, 0.0) for pid, cpu in after.items())
        return used / passed, (kept(conn) - done) / passed


async def _enqueue(url: str, seconds: float) -> None:
    begun = time.monotonic()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        for number in range(round(seconds * PER_SECOND)):
            await asyncio.sleep(begun + number / PER_SECOND - time.monotonic())
            await many.enqueue(conn, of_many[number * 37 % len(of_many)].new())
    await asyncio.sleep(begun + seconds - time.monotonic())


def _backends(conn: psycopg.Connection[Any]) -> dict[int, float]:
    rows = conn.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast'").fetchall()
    return {pid: time_on_cpu(pid) for (pid,) in rows}


@contextmanager
def _worker_process(url: str) -> Iterator[None]:
    command = [sys.executable, "-m", "holdfast", "worker", "labs.bench.application:many", "--log-level", "warning"]
    worker = subprocess.Popen(command, env=os.environ | {"HOLDFAST_DATABASE_URL": url}, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(60)


def _wait(conn: psycopg.Connection[Any], query: str) -> None:
    until = time.monotonic() + STARTED_WITHIN
    while not (row := conn.execute(query.encode()).fetchone()) or not row[0]:
        assert time.monotonic() < until
        time.sleep(0.05)
