"""The rows of workers, the control table of queues, and the partitions that workers create in advance."""

from __future__ import annotations

import json
import os
import socket
from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import TYPE_CHECKING, Literal, NamedTuple
from uuid import UUID

from holdfast._distribution import version
from holdfast._store.answer import Answer, Id
from holdfast._store.statement import Row, Statement, json_text, many, nothing, statement, text_array, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from holdfast._store.inspect import Census, KindCount


def register_worker(  # noqa: PLR0913 - one keyword per column
    name: str,
    *,
    queues: Iterable[str],
    kinds: Iterable[str],
    identity: UUID | None = None,
    versions: Mapping[str, int] | None = None,
    limits: Mapping[str, Mapping[str, int]] | None = None,
    settings: Mapping[str, int | None] | None = None,
    app_version: str | None = None,
) -> Statement[int]:
    """Register a worker; return an id that no worker had before, a part of every fence.

    `identity`: proves the owner of the row where an id can repeat, as after a restore from a backup; statements without
    it trust the id. `versions`: payload versions that it takes, where newer than 1. `limits`: how long jobs may run, by
    kind: `{"max_runtime": ms}`, or `{"lease": ms}` for three leases. `settings`: the worker's settings, for operators.
    `app_version`: of the application.
    """
    return statement(
        "register_worker",
        value,
        name=name,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=version(),
        queues=text_array(sorted(queues)),
        kinds=text_array(sorted(kinds)),
        identity=_text(identity),
        versions=json_text(versions),
        limits=json_text(limits),
        settings=json_text(settings),
        app_version=app_version,
    )


def served_version(kind: str) -> Statement[int]:
    """Return the newest payload version of this kind that a live worker takes; 0 when none takes one above 1."""
    return statement("served_version", lambda rows: rows[0][0] or 0, kind=kind)


class Runtime(NamedTuple):
    """How long jobs of a kind may run."""

    ms: int
    by_default: bool
    """True: three leases, because the kind sets no `max_runtime`."""


def served_runtime(kind: str, queue: str) -> Statement[Runtime | None]:
    """Return how long live workers let a job of this kind and queue run; None when no worker serves it."""
    return statement(
        "served_runtime", lambda rows: None if rows[0][0] is None else Runtime._make(rows[0]), kind=kind, queue=queue
    )


def live_settings() -> Statement[dict[str, int | None]]:
    """Return the settings of the live workers, None where they differ; empty when there is no live worker."""
    return statement("live_settings", dict)


def stop_worker(
    worker: int, reason: str, identity: UUID | None = None, *, counters: Mapping[str, int] | None = None
) -> Statement[None]:
    """Record that the worker stopped and its counters. Without `counters`, keep those of its last heartbeat."""
    text = None if counters is None else json.dumps(dict(counters))
    return statement("stop_worker", nothing, worker=worker, reason=reason, identity=_text(identity), counters=text)


class QueueControlRow(NamedTuple):
    """A row of the control table; None leaves the worker's own setting."""

    name: str
    paused: bool
    concurrency: int | None
    lease_ms: int | None
    rate: float | None


class Beat(NamedTuple):
    """The answer to a heartbeat."""

    own: bool
    """False: the worker's row is gone or belongs to another worker."""
    place: int
    """Of this worker among its peers, from 0: the live workers of the same kinds, in order of their ids."""
    peers: int
    """How many they are, this worker among them."""
    at: float
    """The time of the server's clock, in seconds."""
    queues: list[QueueControlRow]


def beat_worker(
    worker: int,
    counters: Mapping[str, int],
    identity: UUID | None = None,
    *,
    live_seconds: float = 60.0,
    report: str | None = None,
) -> Statement[Beat]:
    """Record a heartbeat. `live_seconds`: a worker is a peer if its last heartbeat is no older. Default: 60.

    `report`: JSON for operators; see `WorkerReport`. Default: none.
    """
    return statement(
        "beat_worker",
        lambda rows: Beat._make((*rows[0][:4], [QueueControlRow._make(row) for row in json.loads(rows[0][4] or "[]")])),
        worker=worker,
        counters=json.dumps(dict(counters)),
        identity=_text(identity),
        ms=round(live_seconds * 1000),
        report=report,
    )


def read_queues() -> Statement[list[QueueControlRow]]:
    return statement("read_queues", many(QueueControlRow))


def ensure_partitions(ahead: int = 3) -> Statement[int]:
    """Create the missing day partitions for the next `ahead` days; return how many. Default: 3."""
    return statement("ensure_partitions", value, ahead=ahead)


class Locker(NamedTuple):
    """A session of the database: its process id and role."""

    pid: int
    role: str | None


def partition_lockers() -> Statement[list[Locker]]:
    """Return the sessions whose locks may prevent the creation of partitions."""
    return statement("partition_lockers", many(Locker))


def _text(identity: UUID | None) -> str | None:
    return None if identity is None else str(identity)


def identify_database() -> Statement[str]:
    """Return an identifier of digits and a hyphen that is unique to this database."""
    return statement("identify_database", value)


def read_identity() -> Statement[str]:
    """Return the identity of the schema, a part of idempotency keys and message ids; empty if its row was deleted."""
    return statement("read_identity", lambda rows: UUID(str(rows[0][0])).hex if rows else "")


MOST_WORKERS = 500


class WorkerLine(Answer):
    id: Id
    name: str
    host: str | None
    pid: int | None
    version: str | None
    """Of Holdfast."""
    state: Literal["live", "silent", "stopped"]
    """`silent`: not stopped, and two heartbeats are missing."""
    started_at: datetime
    heartbeat_at: datetime
    reaped_at: datetime | None
    stopped_at: datetime | None
    stop_reason: str | None
    queues: list[str]
    kinds: list[str]
    counters: dict[str, int]
    app_version: str | None
    """Of the application, as `HOLDFAST_APP_VERSION` names it; null: it is not set."""


def list_workers(*, latest: int = 50) -> Statement[list[WorkerLine]]:
    """Return the workers that have not stopped, and the `latest` workers. Default: 50."""
    return statement("list_workers", _workers, limit=MOST_WORKERS, latest=latest)


def is_served(queue: str, kind: str, workers: Iterable[WorkerLine]) -> bool:
    """Return whether a live worker takes jobs of this kind from this queue."""
    return any(one.state == "live" and queue in one.queues and kind in one.kinds for one in workers)


def unserved(census: Census, workers: Iterable[WorkerLine]) -> list[KindCount]:
    """Return the kinds that have due jobs but no live worker."""
    served = {(queue, kind) for one in workers if one.state == "live" for queue in one.queues for kind in one.kinds}
    return [line for line in census.lines if line.due and (line.queue, line.kind) not in served]


def is_queue_known(name: str) -> Statement[bool]:
    """Return whether a control row, a worker or a waiting job names this queue."""
    return statement("is_queue_known", value, name=name)


def set_queue(name: str, *, concurrency: int | None, lease_ms: int | None, rate: float | None) -> Statement[None]:
    """Set the limits of a queue; None leaves the worker's own setting."""
    return statement("set_queue", nothing, name=name, concurrency=concurrency, lease_ms=lease_ms, rate=rate)


def pause_queue(name: str, *, by: str | None = None, reason: str | None = None) -> Statement[bool]:
    """Pause a queue, so that no worker claims from it; False when it was paused already.

    `by`: who does it. Defaults to the user of the database. `reason`: shown with the pause. Defaults to none.
    """
    return statement("pause_queue", bool, name=name, by=by, reason=reason)


def resume_queue(name: str) -> Statement[bool]:
    """Let workers claim from a queue again; False when it was not paused."""
    return statement("resume_queue", bool, name=name)


def _workers(rows: Sequence[Row]) -> list[WorkerLine]:
    return [WorkerLine.of(*row[:13], json.loads(row[13]) if row[13] else {}, row[14]) for row in rows]
