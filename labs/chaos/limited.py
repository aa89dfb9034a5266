"""Limits under fire: eight worker processes that are killed, frozen and cut off, and nothing but jobs with limits.

python -m labs.chaos.limited                  100,000 jobs; writes labs/chaos/limits.md
python -m labs.chaos.limited --jobs 5000      smaller; from 10,000 on it is written too
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from holdfast import Holdfast, Job, Limit, Retry
from holdfast._drivers import run_sync
from holdfast._store.limit import mend_limits
from labs.bench.figure import table
from labs.chaos.ground import DATABASE, USER, furnish
from labs.chaos.proxy import Proxy
from tools.postgres import Server

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from holdfast import NewJob

JOBS = 100_000
WORKERS = 8
SLOTS = 8
LEASE = 4.0
"""In seconds."""
SETTINGS = {
    "HOLDFAST_LEASE_MS": 4000,
    "HOLDFAST_HEARTBEAT_MS": 1000,
    "HOLDFAST_REAP_INTERVAL_MS": 1000,
    "HOLDFAST_SHUTDOWN_TIMEOUT_MS": 4000,
    "HOLDFAST_ERROR_BACKOFF_MS": 300,
    "HOLDFAST_IDLE_MAX_MS": 1000,
}
EVERY = 3.0
"""Seconds from one fault to the next."""
MOST_WAITING = 3000
STUCK_AFTER = 120.0
WRITTEN_FROM = 10_000
HEAD = """\
# Limits under fire

`python -m labs.chaos.limited` writes this file. A trigger records each place that a claim takes and each that is free
again, in the order of the commits, and between which times a claim under a rate took its tokens."""
REPORT = Path(__file__).with_name("limits.md")
RETRY = Retry(max_attempts=200, base=timedelta(milliseconds=20), maximum=timedelta(milliseconds=500))

app = Holdfast()
app.limit("wide", concurrency=12)


async def _run(job: Job[None], seconds: float) -> None:
    await asyncio.sleep(seconds)
    if job.attempt == 1 and job.id % 40 == 0:
        raise RuntimeError("stumbled")


@app.job("keyed", queue="limited", retry=RETRY, limits=[Limit(concurrency=2, by="key"), "wide"])
async def keyed(job: Job[None], key: str, seconds: float = 0) -> None:  # noqa: ARG001 - its limit is by it
    await _run(job, seconds)


@app.job("few", queue="limited", retry=RETRY, limits=[Limit(concurrency=3)])
async def few(job: Job[None], seconds: float = 0) -> None:
    await _run(job, seconds)


@app.job("rated", queue="limited", retry=RETRY, limits=[Limit(rate="50/s", burst=10)])
async def rated(job: Job[None]) -> None:
    await _run(job, 0)


def work(name: str, url: str) -> None:
    """Run one worker until SIGTERM."""
    app.url = url
    logging.disable()

    async def serve() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        async with app.worker(id=name, queues={"limited": SLOTS}):
            await stop.wait()

    asyncio.run(serve())


@dataclass
class Crew:
    """The worker processes, each behind a proxy of its own, and what was done to them."""

    urls: list[str]
    proxies: list[Proxy]
    faults: Counter[str] = field(default_factory=Counter)
    processes: list[BaseProcess] = field(default_factory=list)
    starts: int = 0

    def __post_init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["labs.chaos.limited"])
        self.processes = [self._start(number) for number in range(len(self.urls))]

    def strike(self, dice: random.Random) -> None:
        """Do something to one worker; it lasts for a moment, or longer than a lease."""
        number = dice.randrange(len(self.urls))
        proxy, process = self.proxies[number], self.processes[number]
        match dice.choice(("killed", "killed", "frozen", "cut", "cut off")):
            case "killed":
                self.faults["worker killed (SIGKILL)"] += 1
                process.kill()
                process.join()
                self.processes[number] = self._start(number)
            case "frozen":
                self.faults["worker frozen for 0.7 to 1.7 leases"] += 1
                os.kill(process.pid or 0, signal.SIGSTOP)
                time.sleep(LEASE * dice.uniform(0.7, 1.7))
                os.kill(process.pid or 0, signal.SIGCONT)
            case "cut":
                self.faults["connections of a worker cut"] += 1
                proxy.cut()
            case "cut off":
                self.faults["worker cut off for 0.7 to 1.7 leases"] += 1
                dice.choice((proxy.refuse, proxy.half_open))()
                time.sleep(LEASE * dice.uniform(0.7, 1.7))
                proxy.pass_()

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join(30)
            process.kill()

    def _start(self, number: int) -> BaseProcess:
        self.starts += 1
        process = self._context.Process(target=work, args=(f"w{number}.{self.starts}", self.urls[number]), daemon=True)
        process.start()
        return process


def new_job(dice: random.Random) -> NewJob[Any]:
    seconds = dice.choice((0, 0, 0, 0, 0, 0, 0, 0, 0.02, 0.1))
    match dice.random():
        case share if share < 0.15:
            return rated.new()
        case share if share < 0.4:
            return few.new(seconds)
        case _:
            return keyed.new(str(dice.randrange(24)), seconds)


def enqueue(conn: psycopg.Connection[Any], jobs: int, dice: random.Random) -> None:
    """Enqueue one by one or many at once, and roll some transactions back."""
    with conn.transaction(force_rollback=dice.random() < 0.03) as transaction:
        if dice.random() < 0.5:
            app.sync.enqueue_many(conn, [new_job(dice) for _ in range(jobs)])
        else:
            for _ in range(jobs):
                app.sync.enqueue(conn, new_job(dice))
    if transaction.force_rollback:
        enqueue(conn, jobs, dice)


def value(conn: psycopg.Connection[Any], query: str) -> Any:
    row = conn.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def run(conn: psycopg.Connection[Any], crew: Crew, jobs: int, dice: random.Random) -> None:
    """Enqueue and strike until all have ended, or none has for long."""
    made, printed_at, struck_at = 0, 0.0, time.monotonic()
    least, moved_at = jobs, time.monotonic()
    while (live := value(conn, "SELECT count(*) FROM holdfast.job")) or made < jobs:
        while live < MOST_WAITING and made < jobs:
            batch = min(dice.choice((1, 20, 200)), jobs - made)
            enqueue(conn, batch, dice)
            made, live = made + batch, live + batch
        left = jobs - made + live
        if left < least:
            least, moved_at = left, time.monotonic()
        if time.monotonic() - moved_at > STUCK_AFTER:
            print(f"given up: {live} jobs do not end", file=sys.stderr)
            return
        if time.monotonic() - struck_at > EVERY and left > MOST_WAITING / 10:
            crew.strike(dice)
            struck_at = time.monotonic()
        if time.monotonic() - printed_at > 10:
            printed_at = time.monotonic()
            print(f"{left:,} of {jobs:,} left, {sum(crew.faults.values())} faults", file=sys.stderr, flush=True)
        time.sleep(0.1)


def stranded(conn: psycopg.Connection[Any]) -> int:
    """Count the keys that maintenance had to mend, and those that are stranded now."""
    return int(
        value(conn, "SELECT coalesce(sum((counts ->> 'limits_mended')::integer), 0) FROM holdfast.run")
        + run_sync(conn, mend_limits(since=None, name=None, limit=10_000))[1]
    )


# Of each limit: what it allows, its keys, the jobs that started, and the most that there was of a key at once; of a
# rate, how many more started than it allows in the time, in the worst time of any length. Last: was it passed?
_FOUND = """
    SELECT r.name, CASE WHEN r.starts IS NULL THEN format('%s at once', r.concurrency)
            ELSE format('%s in %s ms, and %s more', r.starts, r.period_ms, r.burst) END, p.keys, p.started,
        CASE WHEN r.starts IS NULL THEN format('%s at once', p.taken) ELSE format('%s more', round(s.excess, 2)) END,
        CASE WHEN r.starts IS NULL THEN p.taken > r.concurrency ELSE s.excess > r.burst END
    FROM holdfast.limit_rule r JOIN (
            SELECT split_part(t.key, ':', 1) AS name, max(t.taken) AS taken, count(DISTINCT t.key) AS keys,
                count(*) FILTER (WHERE t.change > 0) AS started
            FROM (SELECT key, change, sum(change) OVER (PARTITION BY key ORDER BY n) AS taken FROM chaos.place) AS t
            GROUP BY 1) AS p ON p.name = r.name
        LEFT JOIN (SELECT split_part(key, ':', 1) AS name, max(excess) AS excess FROM chaos.start GROUP BY 1) AS s
            ON s.name = r.name
    ORDER BY r.name
"""
_LOST = "SELECT count(*) FROM holdfast.attempt WHERE outcome = 'lost'"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m labs.chaos.limited", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments = parser.parse_args()
    os.environ.update({name: str(setting) for name, setting in SETTINGS.items()})
    dice, begun = random.Random(arguments.seed), time.monotonic()
    with ExitStack() as stack:
        server = stack.enter_context(Server(int(os.environ.get("HOLDFAST_CHAOS_POSTGRES", "15")), max_connections=150))
        furnish(server.url)
        conn = stack.enter_context(psycopg.connect(server.url(DATABASE), autocommit=True))
        proxies = [stack.enter_context(Proxy(server.port)) for _ in range(WORKERS)]
        crew = Crew([f"postgresql://{USER}@127.0.0.1:{proxy.port}/{DATABASE}" for proxy in proxies], proxies)
        stack.callback(crew.stop)
        run(conn, crew, arguments.jobs, dice)
        seconds, left = time.monotonic() - begun, value(conn, "SELECT count(*) FROM holdfast.job")
        crew.stop()
        found = conn.execute(_FOUND).fetchall()
        strays = stranded(conn)
        ended: dict[str, int] = dict(
            conn.execute("SELECT status::text, count(*) FROM holdfast.job_history GROUP BY 1").fetchall()
        )
        counts = (
            f"**{sum(ended.values()):,} jobs ended** ({', '.join(f'{n:,} {name}' for name, n in ended.items())}), "
            f"{left} did not; {strays} keys were stranded; {value(conn, _LOST):,} attempts lost their lease. {WORKERS} "
            f"worker processes of {SLOTS} slots, {crew.starts} starts, {sum(crew.faults.values())} faults in "
            f"{seconds / 60:.0f} minutes on a busy machine, PostgreSQL {server.version}, seed {arguments.seed}."
        )
    rows = [tuple(map(_cell, row[:5])) for row in found]
    limits = table(("limit", "allows", "keys", "starts", "the most of a key"), rows)
    faults = table(("fault", "times"), [(name, f"{times:,}") for name, times in sorted(crew.faults.items())])
    print(counts, limits, faults, sep="\n\n")
    is_right = not strays and not left and sum(ended.values()) == arguments.jobs and not any(row[5] for row in found)
    print("every limit held" if is_right else "VIOLATED")
    if arguments.jobs >= WRITTEN_FROM:
        REPORT.write_text(f"{HEAD}\n\n{counts}\n\n{limits}\n\n{faults}\n", "utf-8")
    return 0 if is_right else 1


def _cell(found: object) -> str:
    return f"{found:,}" if isinstance(found, int) else str(found)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
