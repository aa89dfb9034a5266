"""Workers and queues, for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from holdfast.store.statement import Row, Statement, statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from holdfast.store.census import Census, Counted
    from holdfast.store.statement import Parameter

MOST_WORKERS = 500


class FleetWorker(NamedTuple):
    id: int
    name: str
    host: str | None
    pid: int | None
    version: str | None
    state: str
    """`live`, `silent` or `stopped`."""
    started_at: datetime
    heartbeat_at: datetime
    reaped_at: datetime | None
    stopped_at: datetime | None
    stop_reason: str | None
    queues: list[str]
    kinds: list[str]
    counters: dict[str, int]


def list_workers(*, latest: int = 50) -> Statement[list[FleetWorker]]:
    """Answer with those that have not stopped, and with so many of the latest."""
    params: dict[str, Parameter] = {"most": MOST_WORKERS, "latest": latest, "most_in_all": MOST_WORKERS}
    return Statement(statements()["list_workers"], params, _workers)


def is_served(queue: str, kind: str, workers: Iterable[FleetWorker]) -> bool:
    """Tell whether a live worker takes jobs of this kind from this queue."""
    return any(one.state == "live" and queue in one.queues and kind in one.kinds for one in workers)


def unserved(census: Census, workers: Iterable[FleetWorker]) -> list[Counted]:
    """Return kinds that have due jobs and no live worker that takes them."""
    served = {(queue, kind) for one in workers if one.state == "live" for queue in one.queues for kind in one.kinds}
    return [line for line in census.lines if line.due and (line.queue, line.kind) not in served]


def set_queue(name: str, *, concurrency: int | None, lease_ms: int | None, rate: float | None) -> Statement[None]:
    """Let a queue run by these from now on; None leaves the worker's own setting."""
    params: dict[str, Parameter] = {"name": name, "concurrency": concurrency, "lease_ms": lease_ms, "rate": rate}
    return Statement(statements()["set_queue"], params, lambda _: None)


def pause_queue(name: str, *, paused: bool) -> Statement[None]:
    """Let nobody claim from a queue, or let them again."""
    return Statement(statements()["pause_queue"], {"name": name, "paused": paused}, lambda _: None)


def _workers(rows: Sequence[Row]) -> list[FleetWorker]:
    return [FleetWorker._make((*row[:13], json.loads(row[13]) if row[13] else {})) for row in rows]
