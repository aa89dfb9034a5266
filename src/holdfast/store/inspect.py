"""What people ask about jobs and servers, and deleting a job. Ask after `limit_time`, in the same transaction."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from holdfast.store.statement import PINNED_PATH, Row, Statement, statements

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast.store.statement import Parameter

MOST = 1000
STATUSES = ("blocked", "pending", "processing", "completed", "failed", "cancelled")

_HOMES = {
    "list_live_jobs": ("blocked", "pending", "processing"),
    "list_ended_jobs": ("completed", "cancelled"),
    "list_dead_letters": ("failed",),
}

Deletion: TypeAlias = Literal["deleted", "processing", "not_found"]


class JobLine(NamedTuple):
    """A job in a list."""

    id: int
    status: str
    kind: str
    queue: str
    priority: int
    attempt: int
    max_attempts: int
    created_at: datetime
    available_at: datetime
    finished_at: datetime | None
    worker: int | None
    order_key: str | None
    error_code: str | None


class AttemptLine(NamedTuple):
    """How one attempt of a job ended."""

    attempt: int
    outcome: str
    ended_at: datetime
    worker: int | None
    worker_name: str | None
    error_code: str | None
    error: str | None
    started_at: datetime | None
    seconds: float | None
    """How long the handler ran."""
    traceback: str | None


class ReplayLine(NamedTuple):
    """A job that runs a dead letter again."""

    id: int
    status: str
    created_at: datetime


class WorkerLine(NamedTuple):
    """A worker, and how it ended."""

    id: int
    name: str
    started_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None
    stop_reason: str | None


class Server(NamedTuple):
    """What a server allows, and what is in use. The limits of the database and of the user may be none."""

    version: int
    backend_pid: int
    user: str
    superuser: bool
    max_connections: int
    reserved: int
    used: int
    database_limit: int | None
    database_used: int
    user_limit: int | None
    user_used: int

    @property
    def free(self) -> int:
        """How many more connections this user can open to this database."""
        limits = [(self.database_limit, self.database_used), (self.user_limit, self.user_used)]
        return min(
            self.max_connections - self.reserved - self.used,
            *(limit - used for limit, used in limits if limit is not None),
            self.max_connections,
        )


class Isolation(NamedTuple):
    """The level of a transaction that says nothing of it, and of whose."""

    level: str
    user: str


class Role(NamedTuple):
    """One of the roles that the schema grants to."""

    name: str
    held: bool


class Rights(NamedTuple):
    """What the present user may do."""

    look: bool
    work: bool
    act: bool
    """As people do: it is written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which jobs; None is any."""

    status: str | None = None
    kind: str | None = None
    queue: str | None = None
    order_key: str | None = None


def limit_time(seconds: float, *, lock_seconds: float = 2, pinned: bool = True) -> Statement[None]:
    """Bound every later statement of the transaction, and return times in UTC.

    `pinned`: also resolve unqualified names in `pg_catalog` alone. False on a connection whose owner goes on with
    statements of their own in the same transaction.
    """
    limits: dict[str, Parameter] = {
        "statement_ms": f"{int(seconds * 1000)}",
        "lock_ms": f"{int(lock_seconds * 1000)}",
        "path": PINNED_PATH if pinned else None,
    }
    return Statement(statements()["limit_time"], limits, lambda _: None)


def list_jobs(which: Filter, most: int) -> list[Statement[list[JobLine]]]:
    """Return a question for each table that may hold such jobs: run them in one snapshot, and merge by id."""
    if not 1 <= most <= MOST:
        raise ValueError(f"a list has 1 to {MOST} jobs, not {most}")
    params: dict[str, Parameter] = {"most": most}
    for name in ("status", "kind", "queue", "order_key"):
        value = getattr(which, name)
        params |= {f"any_{name}": value is None, name: value}
    homes = [home for home, held in _HOMES.items() if which.status is None or which.status in held]
    return [Statement(statements()[home], params, _job_lines) for home in homes]


def read_job(job_id: int) -> Statement[dict[str, Any] | None]:
    """Answer with the row, wherever it is, as the database has it."""
    return Statement(statements()["read_job"], {"id": job_id}, lambda rows: json.loads(rows[0][0]) if rows else None)


def list_attempts(job_id: int, most: int = 200) -> Statement[list[AttemptLine]]:
    """Answer with the latest attempts, oldest first."""
    return Statement(
        statements()["list_attempts"],
        {"id": job_id, "most": most},
        lambda rows: [AttemptLine._make(row) for row in reversed(rows)],
    )


def list_replays(job_id: int, most: int = 20) -> Statement[list[ReplayLine]]:
    return Statement(
        statements()["list_replays"],
        {"id": job_id, "most": most},
        lambda rows: [ReplayLine._make(row) for row in sorted(rows)],
    )


def read_worker(worker: int) -> Statement[WorkerLine | None]:
    return Statement(
        statements()["read_worker"], {"id": worker}, lambda rows: WorkerLine._make(rows[0]) if rows else None
    )


def delete_job(job_id: int) -> Statement[Deletion]:
    """Delete a job that waits, and keep nothing of it. Jobs after its chain learn that it did not complete."""
    return Statement(statements()["delete_job"], {"id": job_id}, _deletion)


def read_isolation() -> Statement[Isolation]:
    return Statement(statements()["read_isolation"], {}, lambda rows: Isolation._make(rows[0]))


def read_server() -> Statement[Server]:
    return Statement(statements()["read_server"], {}, lambda rows: Server._make(rows[0]))


def list_roles() -> Statement[list[Role]]:
    return Statement(statements()["list_roles"], {}, lambda rows: [Role._make(row) for row in rows])


def read_rights() -> Statement[Rights]:
    return Statement(statements()["read_rights"], {}, lambda rows: Rights._make(rows[0]))


def _deletion(rows: Sequence[Row]) -> Deletion:
    answer: Deletion = rows[0][0]
    return answer


def _job_lines(rows: Sequence[Row]) -> list[JobLine]:
    return [JobLine._make(row) for row in rows]
