"""This checkout against another one, each with its own package, schema and server, in turns: drain and WAL.

python -m labs.bench compare --before ../other-worktree
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from labs.bench.figure import Figure, Section, table
from labs.bench.ground import progress
from labs.bench.noise import median_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parents[2]
ROUNDS = 30
WITHIN = 0.02
# More of the first two is better, less of the others.
NAMES = {
    "drained": "worker, jobs a second",
    "bare": "bare loop, jobs a second",
    "cpu": "processor time of worker and server per job, µs",
    "wal": "WAL per job, B",
}

# Runs in the other checkout too, so it uses only what both have.
TURNS = """
import asyncio, json, os, sys, time
from labs.bench.cpu import cpu_seconds
from labs.bench.drain import drain_with_worker
from labs.bench.ground import checkpoint, connected, ground
from labs.bench.load import load_jobs
from labs.bench.wal import Cycle
jobs, batches = 10_000, 20
with ground(full_page_writes="off", autovacuum="off") as base, base.database() as url, connected(url) as conn:
    cycle = Cycle(conn)
    for _ in sys.stdin:
        turn = {}
        load_jobs(conn, jobs); checkpoint(conn)
        begun = time.perf_counter()
        assert cycle.worker.drain() == jobs
        turn["bare"] = jobs / (time.perf_counter() - begun)
        load_jobs(conn, jobs); checkpoint(conn)
        cpu = cpu_seconds(os.getpid())
        turn["drained"] = asyncio.run(drain_with_worker(url, jobs, queues={"default": 100}, batch_size=500))
        turn["cpu"] = (cpu_seconds(os.getpid()) - cpu) / jobs * 1e6
        cycle.written.clear()
        for _ in range(batches):
            cycle.run()
        turn["wal"] = sum(cycle.bytes_per_job.values())
        conn.execute("VACUUM holdfast.job", prepare=False)
        print(json.dumps(turn), flush=True)
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m labs.bench compare", description="This checkout against another one."
    )
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the other commit")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args(arguments)
    section = measure(given.before, given.rounds)
    print(section.markdown())
    return int(any(figure.verdict == "short" for figure in section.figures))


def measure(before: Path, rounds: int) -> Section:
    """Return the figures. The first turn of each warms up and is not counted."""
    turns: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    with ExitStack() as stack:
        sides = {"before": stack.enter_context(_side(before)), "after": stack.enter_context(_side(HERE))}
        for number in range(rounds + 1):
            progress(f"compare: round {number}")
            for name in ("before", "after") if number % 2 else ("after", "before"):
                turns[name].append(sides[name]())
    pairs = list(zip(turns["before"][1:], turns["after"][1:], strict=True))
    figures, rows = [], []
    for key, name in NAMES.items():
        ratios = [after[key] / before[key] for before, after in pairs]
        least, limit = (1 - WITHIN, None) if key in {"drained", "bare"} else (None, 1 + WITHIN)
        figures.append(Figure(f"{name}: after, against before", median(ratios), least=least, limit=limit))
        values = [f"{median(turn[key] for turn in side):,.0f}" for side in zip(*pairs, strict=True)]
        rows.append((name, *values, f"± {median_error(ratios):.3f}"))
    return Section(figures, [table(("", "before", "after", "ratio"), rows)])


@contextmanager
def _side(checkout: Path) -> Iterator[Callable[[], dict[str, float]]]:
    """Yield what runs one turn in a process of that checkout."""
    folder = checkout.resolve()
    # Checkouts from before labs/ have bench/ at their root.
    code = TURNS if (folder / "labs").is_dir() else TURNS.replace("labs.bench", "bench")
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    to, answers = process.stdin, process.stdout

    def turn() -> dict[str, float]:
        to.write("\n")
        to.flush()
        answer = answers.readline()
        assert answer, f"the turn in {folder} failed"
        return {name: float(value) for name, value in json.loads(answer).items()}

    with process:
        yield turn
        to.close()
