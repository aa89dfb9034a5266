"""200 worker processes for one database, all through one PgBouncer in transaction mode.

Idle: every worker has started, and nothing is due. PgBouncer counts the statements of all, the connections of clients
and those to the server. A listener at the server counts the notifications on the channels of all workers.

Load: jobs arrive one by one, evenly. Through the pooler LISTEN does not work, so the time until a job has ended is that
of polling.

Restart: the server is stopped at once, stays away for a while, and starts again, with jobs in the queue. PgBouncer says
how many clients logged in and how many statements they sent in each second, the heartbeats when every worker was back.
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from holdfast._store.sleeper import WORKER_CHANNEL, worker_channel
from labs.bench.application import app, noop
from labs.bench.figure import Figure, Section, table
from labs.bench.fleet import kept, live, number, supervised, wait_until
from labs.bench.ground import Ground, progress, version
from labs.bench.load import load_jobs
from tools.pgbouncer import PgBouncer
from tools.postgres import Server

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS = 200
POOL = 20
SETTLE_SECONDS = 45.0
IDLE_SECONDS = 120.0
LOAD_SECONDS = 60.0
RATE = 20.0
"""Jobs a second."""
IDLE_MAX_MS = 30_000
AWAY_SECONDS = 20.0
WATCHED_SECONDS = 60.0
STATEMENTS = 0.2
BEATEN = "SELECT count(*) FROM holdfast.worker WHERE stopped_at IS NULL AND heartbeat_at > to_timestamp(%s)"
_LOGIN = re.compile(r"login attempt: db=(\w+)")


class Totals(NamedTuple):
    """The counts so far, and the connections now."""

    seconds: float
    statements: int
    logins: int
    clients: int
    servers: int


class Pooler:
    """Reads the console and the log of a PgBouncer, for one database."""

    def __init__(self, pooler: PgBouncer, database: str) -> None:
        self._pooler = pooler
        self._database = database

    def read(self) -> Totals:
        stats, pools = self._rows("SHOW STATS"), self._rows("SHOW POOLS")
        return Totals(
            time.monotonic(),
            int(sum(row["total_query_count"] for row in stats)),
            sum(name == self._database for name in _LOGIN.findall(self._pooler.log)),
            sum(row["cl_active"] + row["cl_waiting"] for row in pools),
            sum(row["sv_active"] + row["sv_idle"] + row["sv_used"] for row in pools),
        )

    def each_second(self, seconds: float) -> list[Totals]:
        """Return a reading for each second from now on, the first one now."""
        found = [self.read()]
        while (left := found[0].seconds + seconds - time.monotonic()) > 0:
            time.sleep(min(1.0, left))
            found.append(self.read())
        return found

    def _rows(self, command: str) -> list[dict[str, Any]]:
        with psycopg.connect(self._pooler.url("pgbouncer"), autocommit=True) as conn:
            # The console takes only the simple protocol.
            cursor = psycopg.ClientCursor(conn, row_factory=dict_row)
            rows: list[dict[str, Any]] = cursor.execute(command.encode()).fetchall()
        return [row for row in rows if row["database"] == self._database]


class Restarted(NamedTuple):
    """Times and loads after a restart of the server, from the moment at which it answered again."""

    back: float
    """Seconds until every worker had beaten."""
    done: float
    """Seconds until the jobs that waited had ended."""
    logins: float
    """Logins in the busiest second, also of the time in which the server was away."""
    statements: float
    """Statements in the busiest second."""
    clients: int


def measure(scale: float) -> Section:
    workers = max(10, round(WORKERS * scale))
    with ExitStack() as stack:
        server = stack.enter_context(Server(version(), shared_buffers="256MB", max_connections=POOL + 20))
        url = stack.enter_context(Ground(server).database())
        database = url.rpartition("/")[2]
        pooler = PgBouncer(server, pool_size=POOL, max_client_conn=20 * workers, log_connections=1)
        stack.enter_context(pooler)
        console = Pooler(pooler, database)
        stack.enter_context(supervised([pooler.url(database)], workers, listen="false", idle_max_ms=IDLE_MAX_MS))
        with psycopg.connect(url, autocommit=True) as conn:
            progress(f"pooled: {workers} workers start")
            wait_until(lambda: live(conn) >= workers, "the workers start", every=0.1)
            notified = _listen(conn)
            time.sleep(SETTLE_SECONDS)
            progress("pooled: idle")
            idle = console.each_second(max(30.0, IDLE_SECONDS * scale))
            progress("pooled: load")
            pickups = _load(conn, max(20.0, LOAD_SECONDS * scale))
            notes = notified()
        time.sleep(SETTLE_SECONDS / 2)
        progress("pooled: restart")
        after = _restart(server, url, console, workers)
    per_worker = (idle[-1].statements - idle[0].statements) / (idle[-1].seconds - idle[0].seconds) / workers
    busiest = max(_rates(idle, "statements"))
    figures = [
        Figure("statements a second of an idle worker", per_worker, limit=STATEMENTS),
        Figure("statements of all in the busiest second, idle", busiest),
        Figure("connections of a worker to the pooler", idle[-1].clients / workers),
        Figure("connections of the pooler to the server", idle[-1].servers, limit=POOL),
        Figure("notifications", notes),
        Figure("p50 until a job has ended, of polling", 1000 * median(pickups), unit=" ms"),
        Figure("after a restart: all workers have beaten", after.back, unit=" s"),
        Figure("after a restart: the jobs that waited have ended", after.done, unit=" s"),
        Figure("after a restart: logins in the busiest second, for each worker", after.logins / workers),
        Figure("after a restart: statements in the busiest second, for each worker", after.statements / workers),
        Figure("after a restart: connections of a worker to the pooler", after.clients / workers),
    ]
    return Section(figures, [_workers_table(workers, idle)])


def _workers_table(workers: int, idle: list[Totals]) -> str:
    last = idle[-1]
    rows = [(str(workers), str(last.clients), str(last.servers), str(POOL))]
    return table(("workers", "connections of clients", "of the pooler to the server", "its limit"), rows)


def _rates(readings: list[Totals], what: str) -> list[float]:
    return [
        (getattr(later, what) - getattr(earlier, what)) / (later.seconds - earlier.seconds)
        for earlier, later in pairwise(readings)
    ]


def _listen(conn: psycopg.Connection[Any]) -> Callable[[], int]:
    """Listen on the channels of all workers. Return a function that returns how many notifications came."""
    ids = [row[0] for row in conn.execute("SELECT id FROM holdfast.worker").fetchall()]
    for channel in (WORKER_CHANNEL, *map(worker_channel, ids)):
        conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
    return lambda: sum(1 for _ in conn.notifies(timeout=1.0))


def _load(conn: psycopg.Connection[Any], seconds: float) -> list[float]:
    """Enqueue jobs evenly, and return for each the seconds until it ended."""
    begun = time.monotonic()
    jobs = 0
    while (passed := time.monotonic() - begun) < seconds:
        if jobs >= passed * RATE:
            time.sleep(1 / RATE / 4)
            continue
        with conn.transaction():
            app.sync.enqueue(conn, noop.new("x"))
        jobs += 1
    wait_until(lambda: kept(conn) >= jobs, "the jobs are done", every=0.1)
    rows = conn.execute("SELECT extract(epoch FROM finished_at - available_at) FROM holdfast.job_history").fetchall()
    return [float(row[0]) for row in rows]


def _restart(server: Server, url: str, console: Pooler, workers: int) -> Restarted:
    with psycopg.connect(url, autocommit=True) as conn:
        load_jobs(conn, workers, due="now() + interval '10 seconds'")
        before = kept(conn)
    server.stop("immediate")
    away = console.each_second(AWAY_SECONDS)
    server.start()
    started, moment = time.monotonic(), time.time()
    back = done = 0.0
    readings = [console.read()]
    with psycopg.connect(url, autocommit=True) as conn:
        while not (back and done) or time.monotonic() - started < WATCHED_SECONDS:
            assert time.monotonic() - started < 5 * WATCHED_SECONDS, f"not back: {back=}, {done=}"
            time.sleep(1.0)
            readings.append(console.read())
            if not back and number(conn, BEATEN, moment) >= workers:
                back = time.monotonic() - started
            if not done and kept(conn) >= before + workers:
                done = time.monotonic() - started
    logins = max([*_rates(away, "logins"), *_rates(readings, "logins")])
    return Restarted(back, done, logins, max(_rates(readings, "statements")), readings[-1].clients)
