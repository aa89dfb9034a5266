"""Run the faults.

python -m labs.chaos                               a million jobs, 300 faults; writes labs/chaos/report.md
python -m labs.chaos --jobs 20000 --faults 30      smaller; writes nothing
python -m labs.chaos --only "worker killed"        some of the faults
python -m labs.chaos --list                        their names
python -m labs.chaos --limits                      100,000 jobs with limits, 8 workers; writes labs/chaos/limits.md
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
from dataclasses import replace

from labs.chaos import faults, report
from labs.chaos.lab import Plan, prove

FULL = Plan(seed=0, jobs=1_000_000, faults=300, quiet=10)
LIMITED = replace(
    FULL,
    jobs=100_000,
    faults=100,
    replicas=8,
    only=(
        "worker killed",
        "worker frozen past its lease",
        "worker frozen for about its lease",
        "network cut",
        "network half open",
        "backends terminated",
    ),
    shares={"limited": 0.9, "rated": 0.1},
    events=0.01,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m labs.chaos", description="Faults, and what must hold under them.")
    parser.add_argument("--seed", type=int, help="makes the same choices again; default: a new one, printed")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--faults", type=int)
    parser.add_argument("--replicas", type=int)
    parser.add_argument("--limits", action="store_true", help="only jobs with limits")
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
    full = LIMITED if arguments.limits else FULL
    plan = replace(
        full,
        seed=seed,
        jobs=arguments.jobs or full.jobs,
        faults=full.faults if arguments.faults is None else arguments.faults,
        replicas=arguments.replicas or full.replicas,
        only=tuple(arguments.only) or full.only,
    )
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    findings = asyncio.run(prove(plan))
    for violation in findings.violations:
        print(violation)
    print(findings.summary())
    if plan.jobs >= full.jobs and plan.faults >= full.faults and plan.only == full.only:
        (report.write_limits if arguments.limits else report.write)(findings)
    return 1 if findings.violations else 0


if __name__ == "__main__":
    sys.exit(main())
