"""A rate of 20 starts a second for two worker processes at once: Holdfast, and the peers that have rates for a fleet.

python -m labs.bench.peers.limits      writes limits.md
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from labs.bench.cpu import cpu_seconds, server_seconds
from labs.bench.figure import table
from labs.bench.ground import progress
from labs.bench.peers.ground import Ground
from labs.bench.peers.place import interpreter, place
from labs.bench.peers.program import Workers, ask
from labs.bench.peers.roster import BY_NAME

NAMES = ("holdfast", "chancy", "dbos")
RATE = 20
SECONDS = 20
PROCESSES = 2
PAGE = Path(__file__).with_name("limits.md")
HEAD = f"""\
# A rate in two processes

`python -m labs.bench.peers.limits` writes this file. {RATE * SECONDS * 2} jobs wait and do nothing, and {PROCESSES}
worker processes together may start {RATE} a second, for {SECONDS} seconds, by the configuration that each library
documents for that. *In the worst second*: the most that started within any second, seen every 20 ms. The processor time
is for each job.
"""


def measure(ground: Ground, name: str) -> tuple[str, ...]:
    """Return a row of the table."""
    peer = BY_NAME[name]
    folder = place(peer.name, python=peer.python)
    command = interpreter(folder, peer.adapter)
    with ground.database(peer) as url:
        ask(command, folder, "prepare", url)
        ask(command, folder, "many", url, RATE * SECONDS * 2)
        with Workers(command, folder, url, PROCESSES) as workers:
            pids = [program.pid for program in workers.programs]
            used = server_seconds(ground.server.pid), sum(map(cpu_seconds, pids))
            workers.go()
            until = time.monotonic() + 60
            while not workers.started and time.monotonic() < until:
                time.sleep(0.05)
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                started = workers.started
                time.sleep(0.02)
            server, own = server_seconds(ground.server.pid) - used[0], sum(map(cpu_seconds, pids)) - used[1]
            points = [(workers.first - 0.02, 0), *sorted(workers.points)]
    worst = max(
        count - max(before for at, before in points if at <= end - 1.02 or before == 0) for end, count in points
    )
    lasted = points[-1][0] - workers.first
    return (
        (peer.python or (name,))[0].replace("==", " "),
        f"{started / max(lasted, 1):.1f}",
        f"{worst}",
        f"{1000 * own / max(started, 1):.1f} ms",
        f"{1000 * server / max(started, 1):.1f} ms",
    )


def main() -> None:
    os.environ["HOLDFAST_PEER_RATE"] = str(RATE)
    rows = []
    with Ground() as ground:
        for name in NAMES:
            rows.append(measure(ground, name))
            progress("peers: " + ", ".join(rows[-1]))
        versions = ground.versions[0]
    columns = ("", "starts a second", "in the worst second", "workers' processor time", "PostgreSQL's")
    PAGE.write_text(f"{HEAD}\n{versions}, {os.cpu_count()} cores, a busy machine.\n\n{table(columns, rows)}\n", "utf-8")


if __name__ == "__main__":
    main()
