"""`python -m labs.chaos.model [--all] [NAME …]`: search the model, and each of its mistakes."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from labs.chaos.model.checks import CHECKS, Check
from labs.chaos.model.spin import provide


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m labs.chaos.model", description=__doc__)
    parser.add_argument("names", nargs="*", help="only those whose name has this in it")
    parser.add_argument("--all", action="store_true", help="the long ones too: minutes, and 3 GB")
    given = parser.parse_args()
    provide()
    wanted = [
        check
        for check in CHECKS
        if (any(name in check.name for name in given.names) if given.names else given.all or not check.long)
    ]
    begun = time.monotonic()
    wrong = 0
    # The long ones have the memory to themselves.
    with ThreadPoolExecutor(1 if given.all else 2) as pool:
        for check, found in zip(wanted, pool.map(Check.run, wanted), strict=True):
            right = found.broken == check.breaks
            wrong += not right
            verdict = "holds" if found.broken is None else f"breaks {found.broken}"
            print(
                f"{'' if right else 'WRONG '}{check.name}: {verdict}, {found.states:,} states, {found.seconds:.1f} s",
                flush=True,
            )
    print(f"{len(wanted)} searches, {wrong} not as expected, {time.monotonic() - begun:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
