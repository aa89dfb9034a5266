"""Reads for operators: jobs, counts and server limits. Also deletes a job. Run after `limit_time`.

Counts come from a periodic census of live jobs and from tallies of ended ones. No page counts a whole table.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from holdfast._store.answer import Answer, ErrorText, Id
from holdfast._store.statement import PINNED_PATH, Row, Statement, nothing, one, one_or_none, statement, value

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST = 1000
STATUSES = ("blocked", "pending", "processing", "completed", "failed", "cancelled")

Deletion: TypeAlias = Literal["deleted", "processing", "not_found"]
MOST_COUNTED = 100_000


class AttemptLine(Answer):
    """How one attempt of a job ended."""

    attempt: int
    outcome: Literal["completed", "retry", "reschedule", "failed", "cancelled", "released", "lost"]
    ended_at: datetime
    worker: Id | None
    worker_name: str | None
    error_code: str | None
    error: ErrorText | None
    started_at: datetime | None
    seconds: float | None
    """How long the handler ran; null: not known, as of a worker that was lost."""
    traceback: ErrorText | None
    """Of the last twenty attempts that raised, if `HOLDFAST_TRACEBACKS` is on."""
    due_at: datetime | None
    waited: float | None
    """How many seconds it was due before it started."""
    app_version: str | None
    """The version of the application that ran it; null: not known."""
    log: ErrorText | None
    """The last log records of the last five attempts, if the kind has `keep_logs`; a completion keeps none."""


class ReplayLine(NamedTuple):
    """A job that replays a dead letter."""

    id: int
    status: str
    created_at: datetime


class WaitingRow(NamedTuple):
    """The reasons why a job waits; None where a reason does not apply."""

    due_at: datetime | None
    paused: bool
    """Whether its queue is paused; then since when, by whom and why, where that is known."""
    paused_at: datetime | None
    paused_by: str | None
    paused_reason: str | None
    blockers: int | None
    """Chains that must end before it."""
    stopped_by: int | None
    """The dead letter that stopped its order key."""
    behind: int | None
    """The first job of its order key."""


class WorkerRow(NamedTuple):
    id: int
    name: str
    started_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None
    stop_reason: str | None
    app_version: str | None


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


class Rights(NamedTuple):
    """The privileges of the current user."""

    look: bool
    work: bool
    act: bool
    """Whether the user may act as an operator, which is recorded in the audit log."""


def limit_time(seconds: float, *, lock_seconds: float = 2, pinned: bool = True) -> Statement[None]:
    """Set timeouts for all later statements of the transaction, and its time zone to UTC.

    `seconds`: per statement. `lock_seconds`: per lock. Default: 2. `pinned`: also resolve unqualified names only in
    `pg_catalog`. Default: True. Use False on a caller's connection that runs other statements in the same transaction.
    """
    limits = {"statement_ms": f"{int(seconds * 1000)}", "lock_ms": f"{int(lock_seconds * 1000)}"}
    return statement("limit_time", nothing, **limits, path=PINNED_PATH if pinned else None)


def read_job(job_id: int) -> Statement[dict[str, Any] | None]:
    """Return the job's row from whichever table has it, unchanged; None if it does not exist."""
    return statement("read_job", lambda rows: json.loads(rows[0][0]) if rows else None, id=job_id)


def read_waiting(job_id: int) -> Statement[WaitingRow | None]:
    return statement("read_waiting", one_or_none(WaitingRow), id=job_id)


def read_key_stop(job_id: int, key: str) -> Statement[int | None]:
    """Return how many jobs wait because this dead letter stopped its order key; None: it stops none."""
    return statement("read_key_stop", lambda rows: rows[0][0] if rows else None, id=job_id, key=key)


def list_attempts(job_id: int, limit: int = 200) -> Statement[list[AttemptLine]]:
    """Return the latest attempts, oldest first."""
    return statement(
        "list_attempts", lambda rows: [AttemptLine.of(*row) for row in reversed(rows)], id=job_id, limit=limit
    )


def list_replays(job_id: int, limit: int = 20) -> Statement[list[ReplayLine]]:
    return statement(
        "list_replays", lambda rows: [ReplayLine._make(row) for row in sorted(rows)], id=job_id, limit=limit
    )


def read_worker(worker: int) -> Statement[WorkerRow | None]:
    return statement("read_worker", one_or_none(WorkerRow), id=worker)


def delete_job(job_id: int) -> Statement[Deletion]:
    """Delete a waiting job without history. Jobs that wait for its chain see that it did not complete."""
    return statement("delete_job", value, id=job_id)


def read_isolation() -> Statement[IsolationLevels]:
    return statement("read_isolation", one(IsolationLevels))


def is_read_only() -> Statement[bool]:
    """Return whether the database cannot be written now."""
    return statement("is_read_only", value)


def read_server() -> Statement[ServerInfo]:
    return statement("read_server", one(ServerInfo))


def list_roles() -> Statement[dict[str, bool]]:
    """Return the roles that the schema grants privileges to, and whether the current user has each."""
    return statement("list_roles", dict)


def read_rights() -> Statement[Rights]:
    return statement("read_rights", one(Rights))


class KindCount(NamedTuple):
    """The number of live jobs of one kind in one queue."""

    queue: str
    kind: str
    pending: int = 0
    due: int = 0
    processing: int = 0
    blocked: int = 0
    stuck: int = 0
    oldest_due_at: datetime | None = None
    stories: int = 0
    """How many of them sleep, or wait for a message or for other jobs, and have recorded steps."""
    oldest_story_at: datetime | None = None
    """When the oldest of these was enqueued."""


class Census(NamedTuple):
    now: datetime
    at: datetime | None
    """None: no census was taken yet."""
    seconds: float
    sampled: float
    """The fraction of the table that was counted."""
    lines: list[KindCount]


def take_census(*, every_ms: int = 5_000, whole: bool = False) -> Statement[bool]:
    """Count the live jobs, unless done recently; with `whole`, only in a small table. Return whether it counted."""
    return statement("take_census", value, every_ms=every_ms, whole=whole)


def read_census() -> Statement[Census]:
    return statement("read_census", _census)


def count_live_jobs() -> Statement[int]:
    """Return the number of live jobs, counted now, up to MOST_COUNTED. For displays there is the census."""
    return statement("count_live_jobs", value, limit=MOST_COUNTED)


def _census(rows: Sequence[Row]) -> Census:
    now, at, seconds, sampled, lines = rows[0]
    if at is None:
        return Census(now, None, 0.0, 1.0, [])
    counted: dict[str, list[dict[str, Any]]] = json.loads(lines)
    found: dict[tuple[str, str], KindCount] = {}
    for line in counted["waiting"]:
        for name in ("oldest_due_at", "oldest_story_at"):
            line[name] = datetime.fromisoformat(line[name]) if line[name] else None
        made = KindCount(**line)
        found[made.queue, made.kind] = made
    for line in counted["processing"]:
        made = found.get((line["queue"], line["kind"]), KindCount(line["queue"], line["kind"]))
        found[made.queue, made.kind] = made._replace(processing=line["processing"], stuck=line["stuck"])
    return Census(now, at, seconds, sampled, sorted(found.values()))
