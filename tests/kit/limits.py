"""Jobs with limits, and the limits themselves, straight in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._model.new_job import Envelope, NewJob
from holdfast._store.limit import mend_limits

if TYPE_CHECKING:
    import psycopg


def limited(*keys: str, kind: str = "k", **options: Any) -> NewJob[Any]:
    """Return a job with these keys of limits."""
    return NewJob[Any](Envelope(kind, limits=keys), "{}").options(**options)


def set_limits(conn: psycopg.Connection[Any], **limits: int | None) -> None:
    """Set how many jobs of each limit may run at once."""
    for name, concurrency in limits.items():
        conn.execute(
            "INSERT INTO holdfast.limit_rule (name, concurrency) VALUES (%s, %s) "
            "ON CONFLICT (name) DO UPDATE SET concurrency = excluded.concurrency",
            [name, concurrency],
        )


def set_rate(conn: psycopg.Connection[Any], name: str, starts: int, period_ms: int, burst: int = 1) -> None:
    conn.execute(
        "INSERT INTO holdfast.limit_rule (name, starts, period_ms, burst) VALUES (%s, %s, %s, %s)",
        [name, starts, period_ms, burst],
    )


def mend(conn: psycopg.Connection[Any], name: str | None = None) -> int:
    """Mend all keys, or those of one limit; return how many needed it."""
    until, found = None, 0
    while True:
        until, mended = run_sync(conn, mend_limits(since=until, name=name, limit=100))
        found += mended
        if until is None:
            return found


def parked(conn: psycopg.Connection[Any]) -> dict[int, str]:
    """Return the parked jobs, and the key that each waits for."""
    return dict(
        conn.execute(
            "SELECT id, limit_key FROM holdfast.job WHERE status = 'blocked' AND limit_key IS NOT NULL"
        ).fetchall()
    )


def promoted(conn: psycopg.Connection[Any]) -> dict[int, str]:
    """Return the promoted jobs, and the key that each was promoted for."""
    return dict(
        conn.execute(
            "SELECT id, limit_key FROM holdfast.job WHERE status = 'pending' AND limit_key IS NOT NULL"
        ).fetchall()
    )
