"""Run the simulation, and write labs/simulation/report.md.

python -m labs.simulation                  every scenario at full size; writes the page and its pictures
python -m labs.simulation rack --scale 0.1 some of it, smaller; writes nothing
python -m labs.simulation validate         compare with real processes and servers on this machine
"""

from __future__ import annotations

import argparse
import signal
import sys
import time

import psycopg

from holdfast._capacity.speed import measure_speed
from labs.bench.ground import ground
from labs.simulation import report
from labs.simulation.scenarios import SCENARIOS
from labs.simulation.validation import SIZES, validate


def main() -> int:
    # Child processes are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(prog="python -m labs.simulation", description="Many workers and many databases.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(SCENARIOS)}, or validate")
    parser.add_argument("--scale", type=float, default=1.0, help="the size, as a part of the full one")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in SCENARIOS and name != "validate"]:
        parser.error(f"no scenario is named {', '.join(unknown)}")
    write = arguments.scale == 1
    for name in arguments.names or SCENARIOS:
        started_at = time.perf_counter()
        if name == "validate":
            with ground() as base, base.database() as url:
                speed = measure_speed(lambda: psycopg.connect(url, autocommit=True))
            text = report.checked(validate(SIZES, speed, arguments.scale))
            pictures: dict[str, str] = {}
        else:
            text, pictures = report.described(name, SCENARIOS[name](arguments.scale))
        print(f"\n{name}, {time.perf_counter() - started_at:.0f} s\n\n{text}", flush=True)
        if write:
            report.write(name, text, pictures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
