"""The cost of a job and of an event: WAL, commits, CPU of server and worker, connections and disk.

Written to src/holdfast/_capacity/costs.json, which `holdfast capacity` and the simulation compute with.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from holdfast import Holdfast, Settings
from holdfast._capacity.speed import Speed, measure_speed
from holdfast._drivers import run, run_sync
from holdfast._engine import link
from holdfast._engine.address import connect
from holdfast._engine.own_row import OwnRow
from holdfast._engine.report.transition import Transitions
from holdfast._engine.runner import Budget
from holdfast._engine.session import Session
from holdfast._store.sleeper import wake_sleepers
from holdfast._store.statement import pin_names
from holdfast._store.worker import register_worker
from labs.bench.application import Discard
from labs.bench.cpu import server_seconds
from labs.bench.figure import Figure, Section, table
from labs.bench.fleet import Meter, live, wait_until, workers
from labs.bench.ground import checkpoint, connected, ground, progress, version
from labs.bench.kept import bytes_kept
from labs.bench.load import KIND, load_jobs
from labs.bench.steps import TOPIC, payload_of, step_costs
from labs.bench.sustained import Case, sustain

if TYPE_CHECKING:
    from labs.bench.fleet import Spent
    from labs.bench.ground import Ground
    from labs.bench.steps import StepSpent
    from labs.bench.sustained import Sustained

FILE = Path(__file__).parents[2] / "src" / "holdfast" / "_capacity" / "costs.json"
PARTS = ("wal", "server", "client")
SIZES = (100, 1_000, 4_000, 10_000)
BATCHES = (50, 500)
DRAINED_BYTES = 60_000_000
MOST_DRAINED = 40_000
# Two heartbeats. A worker opens the connection for them at the first.
IDLE_SECONDS = 30.0
SETTLE_SECONDS = 16.0
EVENTS = 10_000
FULL = Case(1_000, 2, 100)
FULL_SECONDS = 20.0
CONNECTIONS = 60


class Drained(NamedTuple):
    """One drain by one worker process."""

    spent: Spent
    jobs: int
    claims: int
    seconds: float


def measure(scale: float) -> Section:
    with ground(autovacuum="on") as base:
        speeds = [_speed(base)]
        steps, kept = {}, {}
        for size in SIZES:
            progress(f"costs: steps, {size} B")
            with base.database() as url, connected(url) as conn:
                steps[size] = step_costs(conn, size, scale)
            with base.database() as url, connected(url) as conn:
                kept[size] = bytes_kept(conn, size, scale)
        speeds.append(_speed(base))
        drains = {(size, batch): _drain(base, size, batch, scale) for size in SIZES for batch in BATCHES}
        progress(f"costs: {FULL}")
        full = sustain(base, FULL, max(2.0, FULL_SECONDS * scale))
        relayed = {size: _relay(base, size, scale) for size in SIZES}
        idle, connections = _idle(base, scale)
        connect = _connect(base)
        speeds.append(_speed(base))
    # The machine is faster at some times than at others, and the costs are those of all of them.
    speed = Speed(*(median(values) for values in zip(*speeds, strict=True)))
    found = _together(steps, kept, drains, relayed, full)
    found |= {"connect": connect, "idle": idle, "connections": connections, "reference": speed._asdict()}
    if scale == 1:
        FILE.write_text(json.dumps(rounded(found), indent=1) + "\n", "utf-8")
    return _section(found, drains)


def _speed(base: Ground) -> Speed:
    progress("costs: speed")
    with base.database() as url:
        return measure_speed(lambda: psycopg.connect(url, autocommit=True))


def _together(
    steps: dict[int, dict[str, dict[str, StepSpent]]],
    kept: dict[int, dict[str, float]],
    drains: dict[tuple[int, int], Drained],
    relayed: dict[int, float],
    full: Sustained,
) -> dict[str, Any]:
    """Return the costs in the form of costs.json."""
    call, items = _worker_cpu(drains)
    # Everything that a worker does for a job counts as the client's part of its claim, but for the calls.
    client = {
        "claim": (call / 2, items),
        "finish": (call / 2, [0.0] * len(SIZES)),
        "relay": (mean(steps[size]["relay"]["call"].client for size in SIZES), [relayed[size] for size in SIZES]),
    }
    made = {}
    for name in steps[SIZES[0]]:
        parts = {
            kind: {part: [getattr(steps[size][name][kind], part) for size in SIZES] for part in PARTS}
            for kind in ("call", "item")
        }
        made[name] = {"call": {part: mean(values) for part, values in parts["call"].items()}, "item": parts["item"]}
        if name in client:
            made[name]["call"]["client"], made[name]["item"]["client"] = client[name]
    return {
        "machine": f"PostgreSQL {version()}, {os.cpu_count()} cores",
        "payloads": list(SIZES),
        "steps": made,
        "background": _background(made, full),
        "kept": {name: [kept[size][name] for size in SIZES] for name in kept[SIZES[0]]},
    }


def _background(steps: dict[str, Any], full: Sustained) -> float:
    """Return how much more CPU the whole server uses under a full load than its calls alone, with idle cores.

    The rest is that of vacuum, checkpoints and the WAL writer, and of cores that share their caches.
    """
    place = SIZES.index(FULL.payload)
    items = {"enqueue": FULL.enqueue_batch, "claim": FULL.batch, "finish": FULL.batch}
    calls = sum(steps[name]["call"]["server"] / many for name, many in items.items())
    each = sum(steps[name]["item"]["server"][place] for name in items)
    return max(1.0, float(full.spent.server / full.spent.jobs * 1e6 / (calls + each)))


def _worker_cpu(drains: dict[tuple[int, int], Drained]) -> tuple[float, list[float]]:
    """Return the microseconds of a worker per claim with its finish, and per job by size.

    Drains in small and in large batches differ in their calls only.
    """
    calls = []
    for size in SIZES[:2]:
        few, many = (drains[size, batch] for batch in BATCHES)
        per_job = many.spent.clients / many.jobs
        calls.append((few.spent.clients - per_job * few.jobs) / (few.claims - many.claims * few.jobs / many.jobs))
    call = max(0.0, mean(calls))
    items = []
    for size in SIZES:
        runs = [drains[size, batch] for batch in BATCHES]
        items.append(mean((run.spent.clients - call * run.claims) / run.jobs for run in runs) * 1e6)
    return call * 1e6, items


def drained(conn: psycopg.Connection[Any]) -> bool:
    row = conn.execute("SELECT EXISTS (SELECT FROM holdfast.job)").fetchone()
    return row == (False,)


def _drain(base: Ground, size: int, batch: int, scale: float) -> Drained:
    """Let one worker process run jobs that become visible at one moment."""
    jobs = max(1_000, round(min(MOST_DRAINED, DRAINED_BYTES / size) * scale))
    progress(f"costs: drain, {size} B, batches of {batch}")
    with base.database() as url, connected(url) as conn, psycopg.connect(url) as loader:
        with workers(url, 1, batch_size=batch, concurrency=100) as pids:
            wait_until(lambda: live(conn) == 1, "the worker starts")
            # Not after loading: the first change of a page after a checkpoint writes all of it.
            checkpoint(conn)
            load_jobs(loader, jobs, payload=payload_of(size))
            run_sync(loader, wake_sleepers(["default"], [KIND]))
            with Meter(conn, base.server.pid, pids).spent() as found:
                loader.commit()
                wait_until(lambda: drained(conn), "the jobs are done", every=0.02)
        row = conn.execute("SELECT sum((counters ->> 'ticks')::bigint) FROM holdfast.worker").fetchone()
        took = conn.execute("SELECT extract(epoch FROM max(finished_at) - min(finished_at)) FROM holdfast.job_history")
        seconds = took.fetchone()
        assert row is not None
        assert seconds is not None
    return Drained(found[0], jobs, int(row[0]), float(seconds[0]))


def _relay(base: Ground, size: int, scale: float) -> float:
    """Return the microseconds of a worker per relayed event, without a sink."""
    progress(f"costs: relay, {size} B")
    events = max(1_000, round(min(EVENTS, DRAINED_BYTES / size) * scale))
    with base.database() as url, psycopg.connect(url, autocommit=True) as conn:
        app = Holdfast(url)
        topic = app.event(TOPIC, dict)
        data = json.loads(payload_of(size))
        for start in range(0, events, 500):
            made = [topic.new(data, key=str(n)) for n in range(start, min(start + 500, events))]
            with conn.transaction():
                app.sync.publish_many(conn, made)
        app.relay("costs", topic, to=Discard(), start="beginning")
        make = app.relays(Settings.load({}))
        assert make is not None
        worker = run_sync(conn, register_worker("bench", queues=[], kinds=[]))
        relays = make(Session(link.Links(url, name="", timeout=30), OwnRow(worker)), Transitions("bench", ()))
        begun = time.process_time()
        done = asyncio.run(relays.drain(Budget()))
        assert done == {"costs": events}
        return (time.process_time() - begun) / events * 1e6


def _idle(base: Ground, scale: float) -> tuple[dict[str, float], dict[str, int]]:
    """Return what a worker without work costs per second, and the connections that it holds."""
    progress("costs: idle")
    seconds = max(5.0, IDLE_SECONDS * scale)
    with base.database() as url, connected(url) as conn:
        with workers(url, 1) as pids:
            wait_until(lambda: live(conn) == 1, "the worker starts")
            time.sleep(SETTLE_SECONDS)
            held = _sessions(conn)
            with Meter(conn, base.server.pid, pids).spent() as found:
                time.sleep(seconds)
        with workers(url, 1, application="labs.bench.application:relaying"):
            wait_until(lambda: live(conn) == 1, "the worker starts")
            time.sleep(SETTLE_SECONDS)
            relaying = _sessions(conn)
    spent = found[0]
    # Our own: two readings of three statements each, of which one is before the first counter is read.
    per_second = {
        "statements": (spent.commits - 3) / spent.seconds,
        "wal": spent.wal / spent.seconds,
        "server": spent.server / spent.seconds,
        "client": spent.clients / spent.seconds,
    }
    return per_second, {"worker": held, "relay": relaying - held}


def _connect(base: Ground) -> dict[str, float]:
    """Return the microseconds of the server and of a worker per new connection."""
    progress("costs: connect")

    async def connect_all(url: str) -> list[psycopg.AsyncConnection[Any]]:
        return [await connected_link(url) for _ in range(CONNECTIONS)]

    async def spend(url: str) -> tuple[float, float]:
        server, client = server_seconds(base.server.pid), time.process_time()
        opened = await connect_all(url)
        spent = server_seconds(base.server.pid) - server, time.process_time() - client
        for conn in opened:
            await conn.close()
        return spent

    with base.database() as url:
        asyncio.run(spend(url))
        server, client = asyncio.run(spend(url))
    return {"server": server / CONNECTIONS * 1e6, "client": client / CONNECTIONS * 1e6}


async def connected_link(url: str) -> psycopg.AsyncConnection[Any]:
    """Connect as a worker's link does, with the statements that begin a session."""
    conn = await connect(url)
    await link.behind_pooler(conn)
    await run(conn, pin_names(local=False))
    return conn


def _sessions(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    ).fetchone()
    assert row is not None
    return int(row[0])


def rounded(value: Any) -> Any:
    """Return the numbers with four figures, in containers as given."""
    match value:
        case dict():
            return {name: rounded(part) for name, part in value.items()}
        case list():
            return [rounded(part) for part in value]
        case float():
            return float(f"{value:.4g}")
        case _:
            return value


def _section(found: dict[str, Any], drains: dict[tuple[int, int], Drained]) -> Section:
    idle = found["idle"]
    figures = [
        Figure("connections of a worker, per database", found["connections"]["worker"]),
        Figure("more of a worker with subscriptions", found["connections"]["relay"]),
        Figure("a new connection: CPU of the server", found["connect"]["server"] / 1000, unit=" ms"),
        Figure("CPU of the whole server, against that of its calls", found["background"]),
        Figure("idle worker: statements a second", idle["statements"]),
        Figure("idle worker: WAL", idle["wal"], unit=" B/s"),
        Figure("idle worker: CPU of the server", idle["server"] * 1000, unit=" ms/s"),
    ]
    rows = []
    for name, step in found["steps"].items():
        call, item = step["call"], step["item"]
        rows.append((name, "call", f"{call['wal']:,.0f}", f"{call['server']:,.0f}", f"{call['client']:,.0f}"))
        for place, size in enumerate(SIZES):
            parts = [f"{item[part][place]:,.{digits}f}" for part, digits in (("wal", 0), ("server", 1), ("client", 1))]
            rows.append((name, f"each of {size:,} B", *parts))
    kept = [(name, *(f"{size:,.0f}" for size in sizes)) for name, sizes in found["kept"].items()]
    ran = [
        (
            f"{size:,}",
            str(batch),
            f"{run.jobs / run.seconds:,.0f}",
            f"{run.spent.server / run.jobs * 1e6:,.0f}",
            f"{run.spent.clients / run.jobs * 1e6:,.0f}",
            f"{run.spent.wal / run.jobs:,.0f}",
            f"{run.jobs / run.claims:,.0f}",
        )
        for (size, batch), run in drains.items()
    ]
    return Section(
        figures,
        [
            table(("step", "", "WAL, B", "server CPU, µs", "client CPU, µs"), rows),
            table(("bytes on disk per row", *(f"{size:,} B" for size in SIZES)), kept),
            table(
                ("payload, B", "batch", "jobs/s", "server, µs/job", "worker, µs/job", "WAL, B/job", "per claim"), ran
            ),
        ],
    )
