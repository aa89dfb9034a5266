"""The code that the programs of stories share. It runs under the peer's own interpreter: standard library alone.

`URL AT_ONCE N`: it warms up and says that it is ready. On a line it runs N tasks without steps, on another N of ten
steps, so many at once, and says how long each took.
"""

from __future__ import annotations

import json
import sys
import time

STEPS = 10
WARM = 40
RESULT = {"charge": "ch_0123456789", "amount": 4200, "currency": "EUR", "status": "succeeded", "at": "2026-11"}


def arguments() -> tuple[str, int, int]:
    url, at_once, tasks = sys.argv[1:]
    return url, int(at_once), int(tasks)


def main(run, tasks: int) -> None:
    """`run(kind, tasks)` runs tasks of the kind `none` or `ten`, and returns when all have ended."""
    for kind in ("none", "ten"):
        run(kind, WARM)
    print(json.dumps({"ready": True}), flush=True)
    for kind in ("none", "ten"):
        sys.stdin.readline()
        wall, own = time.monotonic(), time.process_time()
        run(kind, tasks)
        spent = {"seconds": time.monotonic() - wall, "client": time.process_time() - own}
        print(json.dumps(spent), flush=True)
