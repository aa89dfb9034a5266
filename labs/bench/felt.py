"""The figures that users meet first: single jobs at every rate, default settings, urgent jobs, calls of one job.

Workers are started by the real command. A handler writes down how long ago its job was sent, by the machine's clock.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from holdfast import AutocommitWarning
from holdfast._drivers import run_sync
from holdfast._store.finish import complete_plain
from holdfast._store.plain import claim_named
from holdfast._store.statement import pin_names, pin_plans
from labs.bench import chart
from labs.bench.application import felt, stamp, urgent
from labs.bench.cpu import time_on_cpu
from labs.bench.figure import Figure, Section, table
from labs.bench.fleet import number, wait_until, workers
from labs.bench.ground import checkpoint, connected, ground, progress
from labs.bench.load import KIND, PAYLOAD, load_jobs
from labs.bench.plain import Plain
from labs.bench.watch import alternate
from labs.bench.worker import Worker, completed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from labs.bench.ground import Ground

GAPS = (2, 5, 10, 20, 30, 50, 100, 300)
"""Milliseconds from one job to the next."""
SECONDS = 2.0
LEAST_JOBS = 25
ROUNDS = 4
MEDIAN_MOST, P99_MOST = 1.3, 1.5
WAITING = 1_000_000
TUNED = {"concurrency": 100, "batch_size": 500}
DRAIN_SECONDS = 3.0
URGENT_JOBS = 200
URGENT_GAP = 0.05
DEFAULTS_LEAST = 0.9
URGENT_MOST = 30.0
URGENT_MOST_JOBS = 840
"""As many as 28,000 a second are in that time: what a busy machine has in common with an idle one."""
CALLS = 300
CALL_MOST = 1.3
APPLICATION = "labs.bench.application:felt"


def measure(scale: float) -> Section:
    pickups, busy, calls = _pickups(scale), _busy(scale), _calls(scale)
    charts = {"felt": _chart(pickups)} if scale == 1 else {}
    figures, tables = [], []
    for section in (_pickup_section(pickups), _busy_section(busy), _calls_section(calls)):
        figures += section.figures
        tables += section.tables
    return Section(figures, tables, charts)


@dataclass(slots=True)
class Pickup:
    """Single jobs at one rate: seconds until each began, and the processor time of all together."""

    times: list[float] = field(default_factory=list)
    process: float = 0.0
    backends: float = 0.0

    @property
    def median(self) -> float:
        return median(self.times)

    @property
    def p99(self) -> float:
        return quantiles(self.times, n=100)[-1]


class Taker:
    """A process that takes single jobs from a database of its own, and the producer of these jobs."""

    def __init__(self, conn: psycopg.Connection[Any], pid: int, begun: Path, send: Callable[[], object]) -> None:
        self._conn, self._pid, self._begun, self._send = conn, pid, begun, send
        wait_until(lambda: self.pickup(1, 0.0).times != [], "the process takes a job")
        self.pickup(50, 0.02)  # of the first second, nothing counts

    def pickup(self, jobs: int, gap: float, into: Pickup | None = None) -> Pickup:
        """Send that many jobs, one every `gap` seconds, and add what becomes of them."""
        found = Pickup() if into is None else into
        self._begun.write_text("")
        before, due = _cpu(self._conn, self._pid), time.monotonic()
        for _ in range(jobs):
            time.sleep(max(0.0, due - time.monotonic()))
            self._send()
            due = max(due + gap, time.monotonic())
        wait_until(lambda: len(self._begun.read_text().splitlines()) >= jobs, "the jobs begin", every=0.02)
        found.times += map(float, self._begun.read_text().split())
        after = _cpu(self._conn, self._pid)
        found.process += after[0] - before[0]
        found.backends += after[1] - before[1]
        return found


def _cpu(conn: psycopg.Connection[Any], pid: int) -> tuple[float, float]:
    """Return the processor time of a process, and of all backends in the database but that of this connection."""
    backends = conn.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    return time_on_cpu(pid), sum(time_on_cpu(backend) for (backend,) in backends)


@contextmanager
def worker_taker(base: Ground) -> Iterator[Taker]:
    """Yield an idle worker of the real command, at default settings."""
    with place(base) as (url, conn, begun), workers(url, 1, application=APPLICATION) as [pid]:
        yield Taker(conn, pid, begun, lambda: felt.sync.enqueue(conn, stamp.new(time.monotonic(), str(begun))))


@contextmanager
def bare_taker(base: Ground) -> Iterator[Taker]:
    """Yield a loop that listens and claims one."""
    with place(base) as (url, conn, begun):
        Plain(conn).create()
        process = subprocess.Popen([sys.executable, "-m", "labs.bench.bare", url, str(begun)])
        try:
            yield Taker(conn, process.pid, begun, lambda: send_plain(conn))
        finally:
            process.kill()
            process.wait()


@contextmanager
def place(base: Ground) -> Iterator[tuple[str, psycopg.Connection[Any], Path]]:
    with base.database() as url, connected(url) as conn, TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", AutocommitWarning)
        (begun := Path(folder) / "begun").touch()
        yield url, conn, begun


def send_plain(conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "WITH made AS (INSERT INTO plain.job (created_at, available_at, queue, kind, payload)"
        " VALUES (clock_timestamp(), clock_timestamp(), 'default', %s, %s::text::json) RETURNING queue)"
        " SELECT pg_notify('plain', queue) FROM made",
        [KIND, f'{{"sent":{time.monotonic()}}}'],
    )


def _pickups(scale: float) -> dict[tuple[str, int], Pickup]:
    found: defaultdict[tuple[str, int], Pickup] = defaultdict(Pickup)
    with ground(autovacuum="on") as base, ExitStack() as stack:
        takers = {
            "worker": stack.enter_context(worker_taker(base)),
            "bare loop": stack.enter_context(bare_taker(base)),
        }
        for turn in range(max(2, round(ROUNDS * scale))):
            for gap in GAPS:
                progress(f"felt: round {turn + 1}, a job every {gap} ms")
                jobs = max(LEAST_JOBS, round(SECONDS * scale * 1000 / gap))
                for name in takers if turn % 2 else reversed(takers):
                    time.sleep(0.3)  # idle again
                    takers[name].pickup(jobs, gap / 1000, found[name, gap])
    return found


def _pickup_section(found: dict[tuple[str, int], Pickup]) -> Section:
    figures, rows = [], []
    for gap in GAPS:
        ours, bare = found["worker", gap], found["bare loop", gap]
        ratios = ours.median / bare.median, ours.p99 / bare.p99
        figures.append(Figure(f"a job every {gap} ms: median, against a bare loop", ratios[0], limit=MEDIAN_MOST))
        figures.append(Figure(f"a job every {gap} ms: 99th of a hundred", ratios[1], limit=P99_MOST))
        cells = [
            cell
            for one in (ours, bare)
            for cell in (
                *(f"{1000 * value:.1f}" for value in (one.median, one.p99)),
                *(f"{1e6 * value / len(one.times):,.0f}" for value in (one.process, one.backends)),
            )
        ]
        rows.append((f"{gap} ms", *cells))
    columns = ("median, ms", "99th", "process, µs of CPU", "backends, µs")
    head = ("a job every", *(f"{name}: {column}" for name in ("worker", "bare loop") for column in columns))
    return Section(figures, [table(head, rows)])


def _chart(found: dict[tuple[str, int], Pickup]) -> str:
    series: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for (name, gap), pickup in sorted(found.items(), reverse=True):
        series[f"{name}, median"].append((1000 / gap, 1000 * pickup.median))
        series[f"{name}, 99th"].append((1000 / gap, 1000 * pickup.p99))
    return chart.lines("From before enqueue to the handler, milliseconds", "jobs a second", series)


@dataclass(frozen=True, slots=True)
class Busy:
    """A worker with a million jobs before it: its rate, and how long urgent jobs took."""

    rate: float
    process: float
    """Its processor time, per job."""
    backends: float
    rate_with_urgent: float
    times: list[float]
    others: list[float]
    """How many jobs began between the call of `enqueue` and each urgent job."""


def _busy(scale: float) -> dict[str, list[Busy]]:
    found: dict[str, list[Busy]] = {"default settings": [], "tuned": []}
    with ground(autovacuum="on") as base, place(base) as (url, conn, begun):
        for turn in range(max(1, round(ROUNDS * scale / 2))):
            for name, measured in found.items():
                progress(f"felt: round {turn + 1}, {name}")
                load_jobs(
                    conn, round(WAITING * scale) - number(conn, "SELECT count(*) FROM holdfast.job"), priorities=(9,)
                )
                checkpoint(conn)
                settings = TUNED if name == "tuned" else {}
                with workers(url, 1, application=APPLICATION, **settings) as [pid]:
                    measured.append(_busy_worker(conn, pid, begun, scale))
                wait_until(
                    lambda: number(conn, "SELECT count(*) FROM holdfast.job WHERE locked_by > 0") == 0, "it stops"
                )
    return found


def _busy_worker(conn: psycopg.Connection[Any], pid: int, begun: Path, scale: float) -> Busy:
    done = _done(conn)[0]
    wait_until(lambda: _done(conn)[0] > done, "the worker takes jobs", every=0.01)
    time.sleep(1.0)
    begun.write_text("")
    jobs, first, cpu = max(50, round(URGENT_JOBS * scale)), _done(conn), _cpu(conn, pid)
    time.sleep(max(1.0, DRAIN_SECONDS * scale))
    alone, cpu_alone = _done(conn), _cpu(conn, pid)
    for _ in range(jobs):
        time.sleep(URGENT_GAP)
        felt.sync.enqueue(conn, urgent.new(time.monotonic(), str(begun)).options(priority=0))
    wait_until(lambda: len(begun.read_text().splitlines()) >= jobs, "the urgent jobs begin", every=0.02)
    last = _done(conn)
    process, backends = ((after - before) / (alone[0] - first[0]) for before, after in zip(cpu, cpu_alone, strict=True))
    times, others = zip(*(map(float, line.split()) for line in begun.read_text().splitlines()), strict=True)
    return Busy(_rate(first, alone), process, backends, _rate(alone, last), [*times], [*others])


def _rate(first: tuple[float, float], last: tuple[float, float]) -> float:
    return (last[0] - first[0]) / (last[1] - first[1])


def _done(conn: psycopg.Connection[Any]) -> tuple[float, float]:
    """Return how many jobs have ended, and when that was, by the database's clock."""
    row = conn.execute(
        "SELECT coalesce(sum(jobs), 0)::float8, extract(epoch FROM clock_timestamp())::float8 FROM holdfast.tally"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def _busy_section(found: dict[str, list[Busy]]) -> Section:
    rates = {name: median(one.rate for one in busy) for name, busy in found.items()}
    spent = {name: median(one.process + one.backends for one in busy) for name, busy in found.items()}
    default, tuned = found
    figures = [
        Figure("drain at default settings, against tuned", rates[default] / rates[tuned], least=DEFAULTS_LEAST),
        Figure("CPU of a job at default settings, against tuned", spent[default] / spent[tuned]),
    ]
    rows = []
    for name, busy in found.items():
        times = [1000 * seconds for one in busy for seconds in one.times]
        others = [jobs for one in busy for jobs in one.others]
        p99, most = (quantiles(values, n=100)[-1] for values in (times, others))
        figures.append(Figure(f"urgent job, {name}: 99th of a hundred", p99, limit=URGENT_MOST, unit=" ms"))
        figures.append(Figure(f"urgent job, {name}: jobs that began meanwhile, 99th", most, limit=URGENT_MOST_JOBS))
        cells = [
            f"{median(values):,.{digits}f}"
            for values, digits in (
                ([one.rate for one in busy], 0),
                ([1e6 * one.process for one in busy], 1),
                ([1e6 * one.backends for one in busy], 1),
                ([one.rate_with_urgent for one in busy], 0),
                (times, 1),
            )
        ]
        rows.append((name, *cells, f"{p99:.1f}", f"{median(others):,.0f}", f"{most:,.0f}"))
    drain = ("jobs a second", "process, µs of CPU", "backends, µs", "with urgent jobs")
    urgent_jobs = ("urgent: median, ms", "99th", "others meanwhile: median", "99th")
    return Section(figures, [table(("", *drain, *urgent_jobs), rows)])


CALL_PAIRS = {
    "a claim of one": "plain claim of one",
    "a claim of none": "plain claim of none",
    "a look before sleeping": "plain claim of none",
    "a finish of one": "plain finish of one",
}


def _calls(scale: float) -> dict[str, list[float]]:
    """Return the backend's processor time of each call, in seconds."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    progress("felt: single calls")
    with ground(autovacuum="off") as base, base.database() as url, connected(url) as conn:
        run_sync(conn, pin_names(local=False))
        run_sync(conn, pin_plans())
        worker, plain, pid = Worker(conn), Plain(conn), conn.info.backend_pid
        plain.create()

        @contextmanager
        def call(name: str) -> Iterator[None]:
            before = time_on_cpu(pid)
            yield
            found[name].append(time_on_cpu(pid) - before)

        def ours() -> None:
            load_jobs(conn, 1)
            made = number(conn, "SELECT max(id) FROM holdfast.job WHERE status = 'pending'")
            with call("a claim of one"):  # by its name, as a worker that sleeps claims it
                jobs = run_sync(conn, claim_named(worker.id, [made], worker.queues, worker.leases))
            with call("a finish of one"):
                assert run_sync(conn, complete_plain(worker.id, completed(jobs))) is None
            with call("a claim of none"):
                assert not worker.claim(10).jobs
            with call("a look before sleeping"):
                run_sync(conn, worker.look_ahead())

        def theirs() -> None:
            plain.enqueue([PAYLOAD])
            with call("plain claim of one"):
                rows = plain.claim(1)
            with call("plain finish of one"):
                plain.finish(rows)
            with call("plain claim of none"):
                assert not plain.claim(1)

        alternate([ours, theirs], 20)
        found.clear()
        alternate([ours, theirs], max(50, round(CALLS * scale)))
    return found


def _calls_section(found: dict[str, list[float]]) -> Section:
    cost = {name: 1e6 * median(seconds) for name, seconds in found.items()}
    figures = [
        Figure(f"{ours}: CPU of the backend, against the plainest", cost[ours] / cost[plain], limit=CALL_MOST)
        for ours, plain in CALL_PAIRS.items()
    ]
    rows = [(ours, f"{cost[ours]:,.0f}", f"{cost[plain]:,.0f}") for ours, plain in CALL_PAIRS.items()]
    return Section(figures, [table(("", "CPU, µs", "the plainest"), rows)])
