"""What people do to single jobs: call them off, run a dead letter again, let a stopped order key go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast.store.statement import Row, Statement, statements

if TYPE_CHECKING:
    from collections.abc import Sequence

Cancellation: TypeAlias = Literal["cancelled", "requested", "not_found"]


def cancel_job(job_id: int) -> Statement[Cancellation]:
    """Call a job off: `cancelled` at once if it has not started; `requested` if it runs, or waits in an order key."""
    return Statement(statements()["cancel_job"], {"id": job_id}, _only)


def replay_job(job_id: int, *, again: bool = False) -> Statement[int | None]:
    """Enqueue a dead letter again, as a new job that names it; None if there is no such dead letter.

    Raises `AlreadyReplayed` while such a job lives, and when the last one completed, unless `again`.
    """
    return Statement(statements()["replay_job"], {"id": job_id, "again": again}, _only)


def resume_order_key(key: str) -> Statement[bool]:
    """Let a stopped order key go on; False if it was not stopped."""
    return Statement(statements()["resume_order_key"], {"key": key}, _only)


def _only(rows: Sequence[Row]) -> Any:
    return rows[0][0]
