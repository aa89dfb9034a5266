"""A loop that listens and claims one job of the plain table, and another that finishes them: the least for single jobs.

python -m labs.bench.bare URL FILE
"""

from __future__ import annotations

import json
import sys
import threading
import time
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psycopg

from labs.bench.plain import Plain

Row = tuple[Any, ...]


def main(url: str, file: str) -> None:
    claimed: SimpleQueue[Row] = SimpleQueue()
    threading.Thread(target=finish, args=[url, claimed], daemon=True).start()
    with (
        psycopg.connect(url, autocommit=True) as listener,
        psycopg.connect(url, autocommit=True, prepare_threshold=0) as conn,
        Path(file).open("a", buffering=1) as begun,
    ):
        plain = Plain(conn)
        listener.execute("LISTEN plain")
        for _ in chain([None], listener.notifies()):
            for row in plain.claim(1):
                begun.write(f"{time.monotonic() - json.loads(row[4])['sent']}\n")
                claimed.put(row)


def finish(url: str, claimed: SimpleQueue[Row]) -> None:
    """Finish what was claimed meanwhile, without end."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as conn:
        while True:
            rows = [claimed.get()]
            while not claimed.empty():
                rows.append(claimed.get())
            Plain(conn).finish(rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
