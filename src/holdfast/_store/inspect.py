"""Reads jobs and server limits for operators, and deletes a job. Run after `limit_time`, in the same transaction."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from holdfast._store.statement import PINNED_PATH, Row, Statement, statements

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast._store.statement import Parameter

MOST = 1000
STATUSES = ("blocked", "pending", "processing", "completed", "failed", "cancelled")

_HOMES = {
    "list_live_jobs": ("blocked", "pending", "processing"),
    "list_ended_jobs": ("completed", "cancelled"),
    "list_dead_letters": ("failed",),
}

Deletion: TypeAlias = Literal["deleted", "processing", "not_found"]


class JobRow(NamedTuple):
    """A job in a list."""

    id: int
    status: str
    kind: str
    queue: str
    priority: int
    attempt: int
    max_attempts: int | None
    created_at: datetime
    available_at: datetime
    finished_at: datetime | None
    worker: int | None
    order_key: str | None
    error_code: str | None


class AttemptRow(NamedTuple):
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
    """A job that replays a dead letter."""

    id: int
    status: str
    created_at: datetime


class WorkerRow(NamedTuple):
    """A worker, and how it stopped."""

    id: int
    name: str
    started_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None
    stop_reason: str | None


class ServerInfo(NamedTuple):
    """The connection limits of a server and their use. The limits of the database and of the user may be None."""

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


class IsolationLevels(NamedTuple):
    """The default isolation level of a transaction, and the user it applies to."""

    level: str
    user: str


class DatabaseRole(NamedTuple):
    """One of the roles that the schema grants privileges to, and whether the current user has it."""

    name: str
    held: bool


class Rights(NamedTuple):
    """The privileges of the current user."""

    look: bool
    work: bool
    act: bool
    """Whether the user may act as an operator, which is recorded in the audit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Selects jobs; None matches any value."""

    status: str | None = None
    kind: str | None = None
    queue: str | None = None
    order_key: str | None = None


def limit_time(seconds: float, *, lock_seconds: float = 2, pinned: bool = True) -> Statement[None]:
    """Set timeouts for all later statements of the transaction, and its time zone to UTC.

    `seconds`: per statement. `lock_seconds`: per lock. Default: 2. `pinned`: also resolve unqualified names only in
    `pg_catalog`. Default: True. Use False on a caller's connection that runs other statements in the same transaction.
    """
    limits: dict[str, Parameter] = {
        "statement_ms": f"{int(seconds * 1000)}",
        "lock_ms": f"{int(lock_seconds * 1000)}",
        "path": PINNED_PATH if pinned else None,
    }
    return Statement(statements()["limit_time"], limits, lambda _: None)


def list_jobs(which: Filter, most: int) -> list[Statement[list[JobRow]]]:
    """Return one statement per table that may hold such jobs: run them in one snapshot and merge by id."""
    if not 1 <= most <= MOST:
        raise ValueError(f"a list has 1 to {MOST} jobs, not {most}")
    params: dict[str, Parameter] = {"most": most}
    for name in ("status", "kind", "queue", "order_key"):
        value = getattr(which, name)
        params |= {f"any_{name}": value is None, name: value}
    homes = [home for home, held in _HOMES.items() if which.status is None or which.status in held]
    return [Statement(statements()[home], params, _job_lines) for home in homes]


def read_job(job_id: int) -> Statement[dict[str, Any] | None]:
    """Return the job's row from whichever table has it, unchanged; None if it does not exist."""
    return Statement(statements()["read_job"], {"id": job_id}, lambda rows: json.loads(rows[0][0]) if rows else None)


def list_attempts(job_id: int, most: int = 200) -> Statement[list[AttemptRow]]:
    """Return the latest attempts, oldest first."""
    return Statement(
        statements()["list_attempts"],
        {"id": job_id, "most": most},
        lambda rows: [AttemptRow._make(row) for row in reversed(rows)],
    )


def list_replays(job_id: int, most: int = 20) -> Statement[list[ReplayLine]]:
    return Statement(
        statements()["list_replays"],
        {"id": job_id, "most": most},
        lambda rows: [ReplayLine._make(row) for row in sorted(rows)],
    )


def read_worker(worker: int) -> Statement[WorkerRow | None]:
    return Statement(
        statements()["read_worker"], {"id": worker}, lambda rows: WorkerRow._make(rows[0]) if rows else None
    )


def delete_job(job_id: int) -> Statement[Deletion]:
    """Delete a waiting job without history. Jobs that wait for its chain see that it did not complete."""
    return Statement(statements()["delete_job"], {"id": job_id}, _deletion)


def read_isolation() -> Statement[IsolationLevels]:
    return Statement(statements()["read_isolation"], {}, lambda rows: IsolationLevels._make(rows[0]))


def read_server() -> Statement[ServerInfo]:
    return Statement(statements()["read_server"], {}, lambda rows: ServerInfo._make(rows[0]))


def list_roles() -> Statement[list[DatabaseRole]]:
    return Statement(statements()["list_roles"], {}, lambda rows: [DatabaseRole._make(row) for row in rows])


def read_rights() -> Statement[Rights]:
    return Statement(statements()["read_rights"], {}, lambda rows: Rights._make(rows[0]))


def _deletion(rows: Sequence[Row]) -> Deletion:
    answer: Deletion = rows[0][0]
    return answer


def _job_lines(rows: Sequence[Row]) -> list[JobRow]:
    return [JobRow._make(row) for row in rows]
