"""The workers' own rows, and the partitions they keep ready."""

from __future__ import annotations

import json
import os
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from holdfast.store.statement import Row, Statement, statements, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def register_worker(name: str, *, queues: Iterable[str], kinds: Iterable[str]) -> Statement[int]:
    """Answer with an id that no worker ever had: the second half of every fence."""
    return Statement(
        statements()["register_worker"],
        {
            "name": name,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": version("holdfast"),
            "queues": text_array(queues),
            "kinds": text_array(kinds),
        },
        _number,
    )


def stop_worker(worker: int, reason: str) -> Statement[None]:
    return Statement(statements()["stop_worker"], {"worker": worker, "reason": reason}, lambda _: None)


class QueueControl(NamedTuple):
    """A row of the control table: null columns leave the worker's own setting."""

    name: str
    paused: bool
    concurrency: int | None
    lease_ms: int | None
    rate: float | None


def beat_worker(worker: int, counters: Mapping[str, int]) -> Statement[bool]:
    """Say that the worker lives; False when its row is gone."""
    return Statement(statements()["beat_worker"], {"worker": worker, "counters": json.dumps(dict(counters))}, bool)


def read_queues() -> Statement[list[QueueControl]]:
    return Statement(statements()["read_queues"], {}, lambda rows: [QueueControl._make(row) for row in rows])


def ensure_partitions(ahead: int = 14) -> Statement[int]:
    """Make the day partitions that are missing, `ahead` days from today; answer how many."""
    return Statement(statements()["ensure_partitions"], {"ahead": ahead}, _number)


def _number(rows: Sequence[Row]) -> int:
    number: int = rows[0][0]
    return number
