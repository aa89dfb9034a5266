"""One fleet of workers for four PostgreSQL servers, against the same fleet for one, and with trouble in some of them.

Cost: the same number of jobs, in one database or spread over four, each on a server of its own, by turns in one run.
The jobs become due at one moment; the servers' clocks say when the last one was finished. The processor time is that of
the workers and of all servers from that moment on. Where the processors are what limits, four servers cannot be faster
than one, and the figure is the processor time of a job.

Trouble: see `bench.trouble`.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from labs.bench import trouble
from labs.bench.cpu import cpu_seconds
from labs.bench.figure import Figure, Section, table
from labs.bench.fleet import completed, live, supervised, wait_until
from labs.bench.ground import Ground, checkpoint, connected, progress, version
from labs.bench.load import load_jobs
from labs.bench.processes import WORKER
from tools.postgres import Server

if TYPE_CHECKING:
    import psycopg

SERVERS = 4
# Enough that what each server does once, at the start of its workers, is a small part.
JOBS = 240_000
ROUNDS = 5
COST = 1.1
LATENCY = 1.5
PROCESSES = 2
SETTINGS: dict[str, str | int] = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "30min",
    "autovacuum": "on",
}


class Cost(NamedTuple):
    """A round: its jobs a second, and microseconds of processor time for each job."""

    rate: float
    workers: float
    servers: float

    @property
    def job(self) -> float:
        return self.workers + self.servers


def measure(scale: float) -> Section:
    jobs = max(8_000, round(JOBS * scale))
    costs: dict[int, list[Cost]] = {1: [], SERVERS: []}
    with ExitStack() as stack:
        grounds = [Ground(stack.enter_context(Server(version(), **SETTINGS))) for _ in range(SERVERS)]
        for turn in range(max(2, round(ROUNDS * scale))):
            for number, measured in costs.items() if turn % 2 else reversed(costs.items()):
                progress(f"databases: round {turn + 1}, {number}")
                measured.append(_cost(grounds[:number], jobs))
    found = trouble.measure(scale)
    one, four = _middle(costs[1]), _middle(costs[SERVERS])
    figures = [
        Figure(f"processor time of a job with {SERVERS} servers, against one", four.job / one.job, limit=COST),
        Figure(f"throughput of {SERVERS} servers, against one", four.rate / one.rate),
        Figure("jobs lost in trouble", found.lost, limit=0),
        Figure("jobs that ended twice in trouble", found.doubled, limit=0),
        Figure("p99 of the other databases in trouble, against none", found.ratio, limit=LATENCY),
    ]
    rows = [
        (str(number), f"{cost.rate:,.0f}", f"{cost.workers:.0f}", f"{cost.servers:.0f}", f"{cost.job:.0f}")
        for number, cost in ((1, one), (SERVERS, four))
    ]
    head = ("servers", "jobs a second", "µs of the workers", "µs of the servers", "µs a job")
    return Section(figures, [table(head, rows), found.table])


def _middle(costs: list[Cost]) -> Cost:
    return Cost(*(median(values) for values in zip(*costs, strict=True)))


def _cost(grounds: list[Ground], jobs: int) -> Cost:
    """Drain the jobs, in equal parts from a database on each of these servers."""
    with ExitStack() as stack:
        urls = [stack.enter_context(ground.database()) for ground in grounds]
        conns = [stack.enter_context(connected(url)) for url in urls]
        fleet = stack.enter_context(supervised(urls, PROCESSES, **WORKER))
        wait_until(lambda: all(live(conn) >= PROCESSES for conn in conns), "the workers start")
        for conn in conns:
            load_jobs(conn, jobs // len(conns), due="now() + interval '1 hour'")
            conn.execute("VACUUM ANALYZE holdfast.job")
            checkpoint(conn)
        pids = [ground.server.pid for ground in grounds]
        for conn in conns:
            conn.execute("UPDATE holdfast.job SET available_at = now() + interval '2 seconds'")
        used, served = cpu_seconds(fleet), sum(map(cpu_seconds, pids))
        each = jobs // len(conns)
        wait_until(lambda: all(completed(conn) >= each for conn in conns), "the jobs are done", every=0.1)
        used, served = cpu_seconds(fleet) - used, sum(map(cpu_seconds, pids)) - served
        begun = min(_time(conn, "min(available_at)") for conn in conns)
        ended = max(_time(conn, "max(finished_at)") for conn in conns)
    return Cost(jobs / (ended - begun), 1e6 * used / jobs, 1e6 * served / jobs)


def _time(conn: psycopg.Connection[Any], what: str) -> float:
    row = conn.execute(f"SELECT extract(epoch FROM {what}) FROM holdfast.job_history".encode()).fetchone()
    assert row is not None
    return float(row[0])
