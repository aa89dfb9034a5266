"""Run the losses of a leader.

python -m labs.chaos.ha                                        all; writes labs/chaos/ha/report.md
python -m labs.chaos.ha --only switchover --way HAProxy        some of them; writes nothing
python -m labs.chaos.ha --list                                 their names
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from labs.chaos.ha import report
from labs.chaos.ha.cluster import WAYS
from labs.chaos.ha.loss import LAGGING, LOSSES
from labs.chaos.ha.run import Plan, run

PLANS = (
    *(Plan(way, loss) for loss in LOSSES if loss is not LAGGING for way in WAYS),
    Plan("several hosts", LAGGING),
    Plan("several hosts", LAGGING, synchronous=False),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m labs.chaos.ha", description="A Patroni cluster loses its leader.")
    parser.add_argument("--only", choices=[loss.name for loss in LOSSES], help="one loss; default: all")
    parser.add_argument("--way", choices=WAYS, help="one way to reach the leader; default: all")
    parser.add_argument("--list", action="store_true", help="print the names of the losses")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(loss.name for loss in LOSSES))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    plans = [plan for plan in PLANS if arguments.only in {None, plan.loss.name} and arguments.way in {None, plan.way}]
    outcomes = []
    for plan in plans:
        outcomes.append(asyncio.run(run(plan)))
        print(outcomes[-1].summary(), flush=True)
    if len(plans) == len(PLANS):
        report.write(outcomes)
    # Asynchronous replication may lose what it has acknowledged; that is what its run shows.
    return 1 if any(outcome.violations for outcome in outcomes if outcome.synchronous) else 0


if __name__ == "__main__":
    sys.exit(main())
