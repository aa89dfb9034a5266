"""Run the measurements: all or some, in full, or smaller to try.

python -m labs.bench                     everything; writes the figures into labs/bench/report.md
python -m labs.bench pair wal            some of it
python -m labs.bench --scale 0.1         smaller; writes nothing
python -m labs.bench peers               the same work against every peer; see labs/bench/peers/run.py
python -m labs.bench compare --before .. this checkout against another one; writes nothing
"""

from __future__ import annotations

import argparse
import signal
import sys
from typing import TYPE_CHECKING

from labs.bench import (
    archive,
    capacity,
    claim,
    claimers,
    compare,
    costs,
    dashboards,
    databases,
    drain,
    enqueue,
    fair,
    felt,
    hot_key,
    lanes,
    log,
    pages,
    pair,
    pinned,
    pooled,
    processes,
    relay,
    report,
    start,
    stories,
    wal,
)
from labs.bench.peers import run as peers

if TYPE_CHECKING:
    from collections.abc import Callable

    from labs.bench.figure import Section

MEASUREMENTS: dict[str, Callable[[float], Section]] = {
    "felt": felt.measure,
    "start": start.measure,
    "pair": pair.measure,
    "claim": claim.measure,
    "claimers": claimers.measure,
    "lanes": lanes.measure,
    "pinned": pinned.measure,
    "wal": wal.measure,
    "costs": costs.measure,
    "capacity": capacity.measure,
    "enqueue": enqueue.measure,
    "fair": fair.measure,
    "hot_key": hot_key.measure,
    "stories": stories.measure,
    "drain": drain.measure,
    "processes": processes.measure,
    "pooled": pooled.measure,
    "relay": relay.measure,
    "log": log.measure,
    "pages": pages.measure,
    "dashboards": dashboards.measure,
    "archive": archive.measure,
    "databases": databases.measure,
}


def main() -> int:
    # Child processes are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if sys.argv[1:2] == ["peers"]:
        return peers.main(sys.argv[2:])
    if sys.argv[1:2] == ["compare"]:
        return compare.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m labs.bench", description="The measurements.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(MEASUREMENTS)}; default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="sizes and times, as a part of the full ones")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in MEASUREMENTS]:
        parser.error(f"no measurement is named {', '.join(unknown)}")
    short = 0
    for name in arguments.names or MEASUREMENTS:
        print(f"\n{name}\n", flush=True)
        section = MEASUREMENTS[name](arguments.scale)
        print(section.markdown(), flush=True)
        short += sum(figure.verdict == "short" for figure in section.figures)
        if arguments.scale == 1:
            report.write(name, section)
    print(f"\n{short} short of the bar" if short else "\nall bars reached")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
