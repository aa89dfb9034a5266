"""Run the faults.

python -m labs.chaos                               a million jobs, 300 faults; writes labs/chaos/report.md
python -m labs.chaos --jobs 20000 --faults 30      smaller; writes nothing
python -m labs.chaos --only "worker killed"        some of the faults
python -m labs.chaos --list                        their names
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys

from labs.chaos import faults, report
from labs.chaos.lab import Plan, prove

JOBS, FAULTS = 1_000_000, 300


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m labs.chaos", description="Faults, and what must hold under them.")
    parser.add_argument("--seed", type=int, help="makes the same choices again; default: a new one, printed")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--faults", type=int, default=FAULTS)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a fault; may be given again")
    parser.add_argument("--list", action="store_true", help="print the names of the faults")
    arguments = parser.parse_args()
    names = [fault.name for fault in faults.FAULTS]
    if arguments.list:
        print("\n".join(names))
        return 0
    if unknown := [name for name in arguments.only if name not in names]:
        parser.error(f"no fault is named {', '.join(unknown)}")
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    plan = Plan(seed, arguments.jobs, arguments.faults, arguments.replicas, tuple(arguments.only), quiet=10)
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    findings = asyncio.run(prove(plan))
    for violation in findings.violations:
        print(violation)
    print(findings.summary())
    if plan.jobs >= JOBS and plan.faults >= FAULTS and not plan.only:
        report.write(findings)
    return 1 if findings.violations else 0


if __name__ == "__main__":
    sys.exit(main())
