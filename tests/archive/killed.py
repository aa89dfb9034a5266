"""A process that exports or drops one day and kills itself at a step: `python -m tests.archive.killed`.

It reads one line of JSON: the url, the location, and either the day and the step of its export, or no step for a drop
that ends between detaching and dropping. It writes the ids of its own children before it dies.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import psycopg

from holdfast._archive import export
from holdfast._archive.cleanup import drop_days
from holdfast._archive.location import Location
from holdfast._drivers import run
from holdfast._store.archive import closed_days


def children() -> list[int]:
    """Return the ids of the processes that this one started."""
    tasks = Path("/proc/self/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def die() -> NoReturn:
    sys.stdout.write(json.dumps(children()) + "\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


class Detaching(psycopg.AsyncConnection[Any]):
    async def execute(self, query: Any, *args: Any, **options: Any) -> Any:
        cursor = await super().execute(query, *args, **options)
        if isinstance(query, bytes) and b"DETACH PARTITION" in query:
            die()
        return cursor


async def main() -> None:
    request = json.loads(sys.stdin.readline())
    location = Location(*request["location"])
    async with await Detaching.connect(request["url"], autocommit=True) as conn:
        if request["step"] is None:
            await drop_days(conn, location, on_dropped=lambda _: None, stopped=lambda: False)
            return
        [period] = [
            day for day in await run(conn, closed_days(limit=100)) if day.starts_on.isoformat() == request["day"]
        ]
        seen: Counter[str] = Counter()

        def on_step(step: str) -> None:
            seen[step] += 1
            # By its third group of rows, a part of the file is on its way.
            if step == request["step"] and seen[step] >= request["nth"]:
                die()

        export.on_step = on_step
        async with export.Exporter(conn, request["url"], location) as exporter:
            await exporter.export(period)


if __name__ == "__main__":
    asyncio.run(main())
