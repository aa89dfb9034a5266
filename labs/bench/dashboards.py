"""Fifty open dashboards: what they cost a worker that drains as fast as it can.

A worker by the real command drains, turn by turn, with no dashboard and with fifty dashboards open at `holdfast
serve`. Server and browsers run on this machine too. Elsewhere they would not, so they get what processor time is left
over (the scheduling class "idle"): what they still cost is what they cost PostgreSQL. For information also the same
when they share the processors with the worker.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._drivers import run_sync
from holdfast._ops.caller import Token
from holdfast._store.access import make_access_token
from labs.bench.browsers import browsers
from labs.bench.cpu import cpu_seconds
from labs.bench.figure import Figure, Section, table
from labs.bench.ground import checkpoint, connected, ground, progress
from labs.bench.load import load_jobs
from labs.bench.noise import median_error
from labs.bench.served import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from labs.bench.browsers import Seen

MINUTES = 60.0
DASHBOARDS = 50
JOBS = 100_000
LEAST = 0.98
EVERY = 2.0
"""Seconds between two overviews."""
SHARING_EVERY = 3
"""Rounds."""
LONGEST_SECONDS = 120.0
NONE_OPEN, LEFT_OVER, SHARING = (
    "no dashboard open",
    "fifty, with spare processor time only",
    "fifty, sharing the processors",
)


class Turn(NamedTuple):
    rate: float
    """Jobs a second."""
    worker: float
    """Processor time of a job, in microseconds."""
    database: float
    seen: Seen | None = None

    @property
    def cpu(self) -> float:
        return self.worker + self.database


@dataclass(slots=True)
class Scene:
    conn: psycopg.Connection[Any]
    worker: int
    postgres: int
    token: str
    addresses: dict[str, str]
    jobs: int
    lead: float
    """Seconds that loading may take."""

    def turn(self, who: str) -> Turn:
        with self._looking(who) as seen:
            while (left := _load(self.conn, self.jobs, self.lead)) <= 0:
                progress(f"dashboards: loading took {-left:.1f} s longer than it may: once more, with more time")
                self.lead -= 2 * left
                _wait(self.conn, self.jobs)
            time.sleep(left)
            before = (cpu_seconds(self.worker), cpu_seconds(self.postgres))
            _wait(self.conn, self.jobs)
            after = (cpu_seconds(self.worker), cpu_seconds(self.postgres))
        worker, database = (1e6 * (b - a) / self.jobs for a, b in zip(before, after, strict=True))
        return Turn(_rate(self.conn, self.jobs), worker, database, seen[0] if seen else None)

    @contextmanager
    def _looking(self, who: str) -> Iterator[list[Seen]]:
        if who == NONE_OPEN:
            yield []
            return
        before = _idle if who == LEFT_OVER else None
        with browsers(self.addresses[who], self.token, DASHBOARDS, before=before) as seen:
            yield seen


def measure(scale: float) -> Section:
    turns: dict[str, list[Turn]] = {NONE_OPEN: [], LEFT_OVER: [], SHARING: []}
    paired: dict[str, list[tuple[Turn, Turn]]] = {LEFT_OVER: [], SHARING: []}
    ends = time.monotonic() + 60 * MINUTES * scale
    with _scene(max(20_000, round(JOBS * min(1, 10 * scale)))) as scene:
        for who in (NONE_OPEN, LEFT_OVER):  # to warm up
            scene.turn(who)
        number = 0
        while time.monotonic() < ends or not paired[SHARING]:
            others = [LEFT_OVER, SHARING] if number % SHARING_EVERY == 0 else [LEFT_OVER]
            order = [NONE_OPEN, *others] if number % 2 else [*others, NONE_OPEN]
            this = {who: scene.turn(who) for who in order}
            for who, turn in this.items():
                turns[who].append(turn)
            for who in others:
                paired[who].append((this[NONE_OPEN], this[who]))
            number += 1
            rates = ", ".join(f"{who} {turn.rate:,.0f}/s {turn.cpu:.1f} µs" for who, turn in this.items())
            progress(f"dashboards: round {number}: {rates}")
    return Section(_figures(paired, turns), [_table(turns)])


def _figures(paired: dict[str, list[tuple[Turn, Turn]]], turns: dict[str, list[Turn]]) -> list[Figure]:
    ratios = {who: [turn.rate / without.rate for without, turn in pairs] for who, pairs in paired.items()}
    seen = [turn.seen for turn in turns[LEFT_OVER] if turn.seen is not None]
    # They begin to count just after one came, and end half-way to the next, on the whole.
    due = sum(one.seconds / EVERY - 0.5 for one in seen)
    return [
        Figure(f"throughput with {DASHBOARDS} dashboards, against none", median(ratios[LEFT_OVER]), least=LEAST),
        Figure("give or take, by the noise of the machine", median_error(ratios[LEFT_OVER])),
        Figure("the same, when server and browsers share the processors", median(ratios[SHARING])),
        Figure(
            "processor time of worker and PostgreSQL per job, none against with dashboards",
            median(without.cpu / turn.cpu for without, turn in paired[LEFT_OVER]),
        ),
        Figure("overviews that each dashboard got, of those due", sum(one.overviews for one in seen) / due, least=0.9),
        Figure("page loads, 95th of a hundred", 1000 * median(one.slowest for one in seen), unit=" ms"),
        Figure("questions that were refused", sum(one.refused for one in seen), limit=0),
    ]


def _table(turns: dict[str, list[Turn]]) -> str:
    rows = [
        (
            who,
            str(len(taken)),
            f"{median(turn.rate for turn in taken):,.0f}",
            f"{median(turn.worker for turn in taken):.1f}",
            f"{median(turn.database for turn in taken):.1f}",
        )
        for who, taken in turns.items()
    ]
    return table(("", "turns", "jobs a second", "worker, µs of CPU per job", "PostgreSQL, µs of CPU per job"), rows)


@contextmanager
def _scene(jobs: int) -> Iterator[Scene]:
    with ExitStack() as stack:
        base = stack.enter_context(ground(autovacuum="off"))
        url = stack.enter_context(base.database())
        conn = stack.enter_context(connected(url))
        token = Token.new()
        run_sync(conn, make_access_token(token.key, name="bench", role="viewer", digest=token.digest, days=1))
        worker = stack.enter_context(_worker(url))
        addresses = {
            LEFT_OVER: stack.enter_context(served(url, before=_idle)).url,
            SHARING: stack.enter_context(served(url)).url,
        }
        yield Scene(conn, worker, base.server.pid, token.text, addresses, jobs, lead=2 + jobs / 25_000)


def _idle() -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


@contextmanager
def _worker(url: str) -> Iterator[int]:
    settings = {"HOLDFAST_DATABASE_URL": url, "HOLDFAST_BATCH_SIZE": "500", "HOLDFAST_CONCURRENCY": "100"}
    command = [sys.executable, "-m", "holdfast", "worker", "labs.bench.application:app", "--log-level", "warning"]
    worker = subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.DEVNULL)
    try:
        yield worker.pid
    finally:
        worker.terminate()
        worker.wait(60)


def _load(conn: psycopg.Connection[Any], jobs: int, lead: float) -> float:
    """Load jobs that are due at one moment, when all is written; answer with the seconds until then."""
    conn.execute("TRUNCATE holdfast.job_history")
    conn.execute("VACUUM holdfast.job, holdfast.tally", prepare=False)
    due = time.time() + lead
    load_jobs(conn, jobs, due=f"to_timestamp({due})")
    checkpoint(conn)
    return due - time.time()


def _wait(conn: psycopg.Connection[Any], jobs: int) -> None:
    until = time.monotonic() + LONGEST_SECONDS
    while True:
        time.sleep(0.5)
        row = conn.execute("SELECT count(*) FROM holdfast.job_history").fetchone()
        assert row is not None
        if row[0] >= jobs:
            return
        assert time.monotonic() < until, f"{row[0]} of {jobs}"


def _rate(conn: psycopg.Connection[Any], jobs: int) -> float:
    """Return the rate between a tenth and nine tenths of the jobs: without the way in and out."""
    row = conn.execute(
        """
        SELECT extract(epoch FROM t[2] - t[1])::float
        FROM (SELECT percentile_disc(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY finished_at) AS t
              FROM holdfast.job_history) AS times
        """
    ).fetchone()
    assert row is not None
    return 0.8 * jobs / float(row[0])
