"""The runs of the validation with real worker processes and real servers, on this machine."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from holdfast._drivers import run_sync
from holdfast._model.new_job import Envelope, NewJob
from holdfast._store.enqueue import enqueue_jobs
from holdfast._store.sleeper import wake_sleepers
from labs.bench.fleet import completed, live, wait_until, workers
from labs.bench.ground import checkpoint, connected, ground
from labs.bench.load import KIND, load_jobs
from labs.bench.steps import payload_of
from labs.simulation.application import KIND as WAITING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from labs.bench.ground import Ground

PAYLOAD = 1000


class Site(NamedTuple):
    """A real server with one database."""

    base: Ground
    url: str
    conn: psycopg.Connection[Any]


@contextmanager
def sites(number: int) -> Iterator[list[Site]]:
    """Yield this many servers, each with its database."""
    with ExitStack() as opened:
        found = []
        for _ in range(number):
            base = opened.enter_context(ground(autovacuum="on", shared_buffers="256MB", max_connections=200))
            url = opened.enter_context(base.database())
            found.append(Site(base, url, opened.enter_context(connected(url))))
        yield found


@contextmanager
def fleet(places: list[Site], processes: int, application: str, **settings: object) -> Iterator[list[int]]:
    """Yield the processes of workers that serve all the databases."""
    urls = " ".join(site.url for site in places)
    with workers(urls, processes, application=application, **settings) as pids:
        wait_until(lambda: all(live(site.conn) == processes for site in places), "the workers start")
        yield pids


def throughput(processes: int, databases: int, jobs: int) -> float:
    """Return jobs per second of a drain of this many jobs in each database."""
    with sites(databases) as places, fleet(places, processes, "labs.bench.application:app"):
        loaders = [psycopg.connect(site.url) for site in places]
        for site, loader in zip(places, loaders, strict=True):
            checkpoint(site.conn)
            load_jobs(loader, jobs, payload=payload_of(PAYLOAD))
            run_sync(loader, wake_sleepers(["default"], [KIND]))
        begun = time.time()
        for loader in loaders:
            loader.commit()
        # Not by counting rows: that would take a part of what is measured.
        wait_until(lambda: all(completed(site.conn) >= jobs for site in places), "the jobs are done")
        last = "SELECT max(extract(epoch FROM finished_at)) FROM holdfast.job_history"
        ended = max(float(row[0]) for site in places if (row := site.conn.execute(last).fetchone()) is not None)
        for loader in loaders:
            loader.close()
    return databases * jobs / (ended - begun)


def pickup(processes: int, databases: int, jobs: int, rate: float) -> float:
    """Return the median seconds from enqueueing one job to its outcome, at a low rate."""
    with sites(databases) as places, fleet(places, processes, "labs.bench.application:app"):
        time.sleep(2.0)
        made = [NewJob[object](Envelope(KIND), payload_of(PAYLOAD))]
        for number in range(jobs):
            run_sync(places[number % databases].conn, enqueue_jobs(made))
            time.sleep(1 / rate)
        wait_until(lambda: all(_drained(site.conn) for site in places), "the jobs are done")
        found = [
            float(row[0])
            for site in places
            for row in site.conn.execute(
                "SELECT extract(epoch FROM finished_at - created_at) FROM holdfast.job_history"
            ).fetchall()
        ]
    return median(found)


def recovery(processes: int, databases: int, jobs: int, seconds: float, settings: Mapping[str, object]) -> float:
    """Kill one worker under load. Return how long until the last job that it held was completed."""
    with sites(databases) as places, fleet(places, processes, "labs.simulation.application:app", **settings) as pids:
        made = [NewJob[object](Envelope(WAITING), json.dumps({"seconds": seconds}))]
        for site in places:
            run_sync(site.conn, enqueue_jobs(made * jobs))
        wait_until(lambda: all(_running(site.conn) for site in places), "the jobs begin")
        time.sleep(1.0)
        killed_at = places[0].conn.execute("SELECT clock_timestamp()").fetchone()
        os.kill(pids[0], signal.SIGKILL)
        wait_until(lambda: all(_drained(site.conn) for site in places), "the jobs are done")
        assert killed_at is not None
        found = [
            site.conn.execute(
                "SELECT extract(epoch FROM max(finished_at) - %s) FROM holdfast.job_history WHERE attempt > 1",
                [killed_at[0]],
            ).fetchone()
            for site in places
        ]
    # The killed worker may have held none.
    return max((float(row[0]) for row in found if row is not None and row[0] is not None), default=0.0)


def idle_statements(processes: int, databases: int, seconds: float) -> float:
    """Return the statements per second and worker that an idle fleet sends to one database."""
    with sites(databases) as places, fleet(places, processes, "labs.bench.application:app"):
        time.sleep(20.0)
        before = [_commits(site.conn) for site in places]
        time.sleep(seconds)
        after = [_commits(site.conn) for site in places]
    # Our own: two statements for each of two readings, of which one is after the second.
    counted = [b - a - 2 for a, b in zip(before, after, strict=True)]
    return sum(counted) / seconds / processes / databases


def _drained(conn: psycopg.Connection[Any]) -> bool:
    return conn.execute("SELECT EXISTS (SELECT FROM holdfast.job)").fetchone() == (False,)


def _running(conn: psycopg.Connection[Any]) -> bool:
    return conn.execute("SELECT EXISTS (SELECT FROM holdfast.job WHERE status = 'processing')").fetchone() == (True,)


def _commits(conn: psycopg.Connection[Any]) -> int:
    conn.execute("SELECT pg_stat_force_next_flush()")
    row = conn.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert row is not None
    return int(row[0])
