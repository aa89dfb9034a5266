"""Tenants: what turns cost, and what a small tenant waits beside one with a large backlog."""

from __future__ import annotations

import statistics
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from labs.bench.cpu import time_on_cpu
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import checkpoint, connected, ground, progress
from labs.bench.load import KIND
from labs.bench.worker import Worker

if TYPE_CHECKING:
    import psycopg

BACKLOG = 1_000_000
SMALL = 99
SECONDS = 30
WORKERS = 4
BATCH = 10
HELD = 0.05
"""Seconds that a batch runs, so that the claim rate is what the workers can do and not what the machine can."""
COSTS = {"no tenant": "NULL", "one": "'t'", "100": "'t' || i % 100", "100,000": "'t' || i % 100000"}
TURNS = 40
ROUNDS = 3
OF_FIFTY = 50


def measure(scale: float) -> Section:
    with ground() as base:
        with base.database() as url, connected(url) as conn:
            waits, rate = _waits(url, conn, round(BACKLOG * scale), max(5.0, SECONDS * scale))
        with ExitStack() as stack:
            costs = _costs(
                {n: stack.enter_context(connected(stack.enter_context(base.database()))) for n in COSTS}, scale
            )
        with base.database() as url:
            shares = _shares(url)
    turn = (SMALL + 1) / rate
    p50, p99 = (statistics.quantiles(waits, n=100)[place] for place in (49, 98))
    plain, mean = costs["no tenant"], statistics.mean(shares)
    figures = [
        Figure("p99 wait of a small tenant, in rounds", p99 / turn, limit=3),
        Figure("Jain index of what tenants get for their weights", _jain(shares), least=0.95),
        Figure("the largest distance from their mean", max(abs(s / mean - 1) for s in shares), limit=0.05),
    ]
    rows = [(name, f"{cost:.0f} µs", f"{cost / plain:.2f}") for name, cost in costs.items()]
    note = (
        f"{len(waits)} jobs of small tenants: p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms; "
        f"{rate:.0f} jobs claimed a second"
    )
    return Section(figures, [note, table(("tenants", "server's processor time a job", "to none"), rows)])


def _load(conn: psycopg.Connection[Any], count: int, tenant: str) -> None:
    conn.execute(
        f"""
        INSERT INTO holdfast.job (created_at, available_at, shard, queue, kind, payload, tenant)
        SELECT now(), now() - interval '1 hour' + i * interval '1 microsecond', i & 63, 'default', '{KIND}', '{{}}',
            {tenant} FROM generate_series(1, {count}) AS i
        """.encode()
    )
    conn.execute("VACUUM ANALYZE holdfast.job")
    checkpoint(conn)


def _waits(url: str, conn: psycopg.Connection[Any], backlog: int, seconds: float) -> tuple[list[float], float]:
    """Return how long each job of a small tenant waited, in seconds, and how many jobs were claimed in each second."""
    _load(conn, backlog, "'t50'")
    progress(f"fair: {backlog:,} of one tenant")
    end = time.monotonic() + seconds
    waits: list[float] = []
    claimed: list[int] = []

    def work() -> None:
        with connected(url) as own:
            worker = Worker(own)
            while time.monotonic() < end:
                jobs = worker.claim(BATCH).jobs
                now = time.time()
                claimed.append(len(jobs))
                waits.extend(now - job.available_at.timestamp() for job in jobs if job.id > backlog)
                time.sleep(HELD)
                worker.finish(jobs)

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    while (begun := time.monotonic()) < end - 2:
        for number in range(SMALL):
            conn.execute(
                "SELECT holdfast.enqueue_jobs(%s)", [f'[{{"kind": "{KIND}", "payload": {{}}, "tenant": "t{number}"}}]']
            )
            time.sleep(max(0.0, begun + (number + 1) / SMALL - time.monotonic()))
    for thread in threads:
        thread.join()
    return waits, sum(claimed) / seconds


def _costs(conns: dict[str, psycopg.Connection[Any]], scale: float) -> dict[str, float]:
    """Return the server's processor time of a claim and completion by turns, in µs for each job."""
    workers = {name: Worker(conn) for name, conn in conns.items()}
    spent: dict[str, list[float]] = {name: [] for name in workers}
    for name, worker in workers.items():
        _load(worker.conn, round(200_000 * max(scale, 0.1)), COSTS[name])
    for _ in range(ROUNDS * TURNS):
        for name, worker in workers.items():
            before = time_on_cpu(worker.conn.info.backend_pid)
            jobs = worker.claim(OF_FIFTY).jobs
            worker.finish(jobs)
            spent[name].append((time_on_cpu(worker.conn.info.backend_pid) - before) * 1e6 / len(jobs))
    return {name: statistics.median(each) for name, each in spent.items()}


def _shares(url: str) -> list[float]:
    """Return what each tenant got in claims of eight sessions, divided by its weight."""
    weights = [1, 2, 4, 1, 2, 4, 1, 2, 4, 8]
    taken = dict.fromkeys((f"t{number}" for number in range(len(weights))), 0)
    with ExitStack() as stack:
        workers = [Worker(stack.enter_context(connected(url))) for _ in range(8)]
        conn = workers[0].conn
        for number, weight in enumerate(weights):
            conn.execute("SELECT holdfast.set_weight(%s, %s)", [f"t{number}", weight])
        _load(conn, 20_000, f"'t' || i % {len(weights)}")
        for _ in range(40):
            for worker in workers:
                jobs = worker.claim(17).jobs
                for (tenant,) in conn.execute(
                    "SELECT tenant FROM holdfast.job WHERE id = ANY (%s)", [[job.id for job in jobs]]
                ).fetchall():
                    taken[tenant] += 1
                worker.finish(jobs)
    return [taken[f"t{number}"] / weight for number, weight in enumerate(weights)]


def _jain(shares: list[float]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))
