"""From the command to the first job: a worker by the real command, and a loop that claims from a plain table."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

from labs.bench.application import felt, stamp
from labs.bench.cpu import cpu_seconds
from labs.bench.felt import APPLICATION, place, send_plain
from labs.bench.figure import Figure, Section, table
from labs.bench.fleet import command, wait_until
from labs.bench.ground import ground, progress
from labs.bench.plain import Plain

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    import psycopg

ROUNDS = 8
MOST = 0.5
Start = tuple[float, float]
"""Seconds until the handler began, and of processor time."""


def measure(scale: float) -> Section:
    found: defaultdict[str, list[Start]] = defaultdict(list)
    with ground(autovacuum="on") as base, place(base) as (url, conn, begun):
        Plain(conn).create()
        for turn in range(max(2, round(ROUNDS * scale))):
            progress(f"start: round {turn + 1}")
            found["worker"].append(_worker(url, conn, begun))
            found["bare loop"].append(_bare(url, conn, begun))
    seconds, cpu = ({name: median(start[of] for start in starts) for name, starts in found.items()} for of in (0, 1))
    figures = [
        Figure("from the command to the first job: processor time", cpu["worker"], limit=MOST, unit=" s"),
        Figure("the same, against a bare loop", cpu["worker"] / cpu["bare loop"]),
        Figure("from the command to the first job", seconds["worker"], unit=" s"),
        Figure("the same of a bare loop", seconds["bare loop"], unit=" s"),
    ]
    rows = [(name, f"{seconds[name]:.2f}", f"{cpu[name]:.2f}") for name in found]
    return Section(figures, [table(("", "first job after, s", "CPU until then, s"), rows)])


def _worker(url: str, conn: psycopg.Connection[Any], begun: Path) -> Start:
    begun.write_text("")
    felt.sync.enqueue(conn, stamp.new(time.monotonic(), str(begun)))
    with command(APPLICATION, {"HOLDFAST_DATABASE_URL": url}) as pid:
        return _first(pid, begun)


def _bare(url: str, conn: psycopg.Connection[Any], begun: Path) -> Start:
    begun.write_text("")
    send_plain(conn)
    process = subprocess.Popen([sys.executable, "-m", "labs.bench.bare", url, str(begun)])
    try:
        return _first(process.pid, begun)
    finally:
        process.kill()
        process.wait()


def _first(pid: int, begun: Path) -> Start:
    wait_until(lambda: begun.read_text() != "", "the first job begins", every=0.002)
    return float(begun.read_text()), cpu_seconds(pid)
