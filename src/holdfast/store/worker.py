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
    from uuid import UUID


def register_worker(  # noqa: PLR0913 - one keyword per column
    name: str,
    *,
    queues: Iterable[str],
    kinds: Iterable[str],
    identity: UUID | None = None,
    versions: Mapping[str, int] | None = None,
    limits: Mapping[str, Mapping[str, int]] | None = None,
) -> Statement[int]:
    """Answer with an id that no worker ever had: the second half of every fence.

    `identity` proves whose row it is where an id could come again, which it does when the database is restored from a
    backup. Statements that name none trust the id. `versions`: of the payloads that it takes, where newer than 1.
    `limits`: by kind, how long jobs may run: `{"max_runtime": ms}`, or `{"lease": ms}` for three leases.
    """
    return Statement(
        statements()["register_worker"],
        {
            "name": name,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": version("holdfast"),
            "queues": text_array(sorted(queues)),
            "kinds": text_array(sorted(kinds)),
            "identity": _text(identity),
            "versions": json.dumps(dict(versions)) if versions else None,
            "limits": json.dumps(limits) if limits else None,
        },
        _number,
    )


def served_version(kind: str) -> Statement[int]:
    """Answer with the newest payload version of this kind that a live worker takes; 0 when none takes one beyond 1."""
    return Statement(statements()["served_version"], {"kind": kind}, lambda rows: rows[0][0] or 0)


class Runtime(NamedTuple):
    """How long jobs of a kind may run."""

    ms: int
    by_default: bool
    """Three leases, as the kind sets no `max_runtime`."""


def served_runtime(kind: str, queue: str) -> Statement[Runtime | None]:
    """Answer with how long live workers let a job of this kind and queue run; None when none serves it."""
    params: dict[str, str | int | None] = {"kind": kind, "queue": queue}
    return Statement(
        statements()["served_runtime"], params, lambda rows: None if rows[0][0] is None else Runtime._make(rows[0])
    )


def stop_worker(
    worker: int, reason: str, identity: UUID | None = None, *, counters: Mapping[str, int] | None = None
) -> Statement[None]:
    """Record that the worker ended, and what it did; without `counters`, that is what its last heartbeat recorded."""
    params: dict[str, str | int | None] = {"worker": worker, "reason": reason, "identity": _text(identity)}
    params["counters"] = None if counters is None else json.dumps(dict(counters))
    return Statement(statements()["stop_worker"], params, lambda _: None)


class QueueControl(NamedTuple):
    """A row of the control table: null columns leave the worker's own setting."""

    name: str
    paused: bool
    concurrency: int | None
    lease_ms: int | None
    rate: float | None


def beat_worker(worker: int, counters: Mapping[str, int], identity: UUID | None = None) -> Statement[bool]:
    """Say that the worker lives; False when its row is gone, or another's."""
    params: dict[str, str | int | None] = {"worker": worker, "counters": json.dumps(dict(counters))}
    params["identity"] = _text(identity)
    return Statement(statements()["beat_worker"], params, lambda rows: bool(rows[0][0]))


def read_queues() -> Statement[list[QueueControl]]:
    return Statement(statements()["read_queues"], {}, lambda rows: [QueueControl._make(row) for row in rows])


def ensure_partitions(ahead: int = 14) -> Statement[int]:
    """Make the day partitions that are missing, `ahead` days from today; answer how many."""
    return Statement(statements()["ensure_partitions"], {"ahead": ahead}, _number)


def _text(identity: UUID | None) -> str | None:
    return None if identity is None else str(identity)


def _number(rows: Sequence[Row]) -> int:
    number: int = rows[0][0]
    return number
