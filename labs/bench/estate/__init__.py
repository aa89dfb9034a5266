"""A database as it is after months of work: what is in it, and a few things in it that are asked for by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from holdfast._drivers import run_sync
from holdfast._ops.caller import Token
from holdfast._store.access import make_access_token
from labs.bench.estate.fleet import fill_fleet
from labs.bench.estate.jobs import RARE, fill_jobs
from labs.bench.estate.relays import fill_relays
from labs.bench.estate.tallies import fill_tallies
from labs.bench.estate.time import KEPT_DAYS, begin_time, make_days
from labs.bench.ground import checkpoint, progress

if TYPE_CHECKING:
    from datetime import datetime

    import psycopg

__all__ = ["RARE", "Estate", "Size", "fill"]


@dataclass(frozen=True, slots=True)
class Size:
    """How much of what grows. The rest is as much in every estate: days, kinds, workers, minutes."""

    history: int = 10_000_000
    pending: int = 1_000_000
    failed: int = 100_000
    runs_a_day: int = 43_200
    """Thirty workers write one a minute."""

    def part(self, scale: float) -> Size:
        """Return a part of the history and of what waits; what people look at all of stays."""
        history, pending = round(self.history * scale), round(self.pending * scale)
        return replace(self, history=max(10_000, history), pending=max(2_000, pending))


@dataclass(frozen=True, slots=True)
class Estate:
    size: Size
    token: str
    """Of a developer."""
    now: datetime
    completed: int
    old: int
    """A job that completed two weeks ago."""
    dead: int
    old_dead: int
    pending: int
    processing: int
    blocked: int
    blocking: int
    """The live chain for which most wait."""
    chain: int
    """Ended, of two jobs."""
    long_chain: int
    """Ended, of a job a minute for two weeks."""
    missing: int
    deep: int
    """In the middle of the history."""


def fill(conn: psycopg.Connection[Any], size: Size) -> Estate:
    progress(f"filling: {size.history:,} in history, {size.pending:,} pending, {size.failed:,} dead letters")
    with conn.transaction():  # in which now() stays what it is
        begin_time(conn)
        for family, days in KEPT_DAYS.items():
            make_days(conn, family, days)
        fill_jobs(conn, history=size.history, pending=size.pending, failed=size.failed)
        fill_tallies(conn)
        fill_fleet(conn, runs_a_day=size.runs_a_day)
        fill_relays(conn)
    conn.execute("VACUUM (ANALYZE)")
    conn.execute("SELECT holdfast.take_census('0', false)")
    checkpoint(conn)
    return _estate(conn, size)


def _estate(conn: psycopg.Connection[Any], size: Size) -> Estate:
    token = Token.new()
    run_sync(conn, make_access_token(token.key, name="bench", role="developer", digest=token.digest, days=1))

    def one(query: str) -> Any:
        row = conn.execute(query.encode()).fetchone()
        assert row is not None, query
        return row[0]

    recent = "finished_at > now() - interval '1 day'"
    return Estate(
        size,
        token.text,
        one("SELECT now()"),
        completed=one(f"SELECT id FROM holdfast.job_history WHERE {recent} AND status = 'completed' LIMIT 1"),
        old=one("SELECT id FROM holdfast.job_history ORDER BY id LIMIT 1"),
        dead=one("SELECT id FROM holdfast.job_failed ORDER BY id DESC LIMIT 1"),
        old_dead=one("SELECT id FROM holdfast.job_failed ORDER BY id LIMIT 1"),
        # The oldest: what is acted on is among the newest.
        pending=one("SELECT id FROM holdfast.job WHERE status = 'pending' ORDER BY id LIMIT 1"),
        processing=one("SELECT id FROM holdfast.job WHERE status = 'processing' ORDER BY id DESC LIMIT 1"),
        blocked=one("SELECT job_id FROM holdfast.blocker ORDER BY job_id DESC LIMIT 1"),
        blocking=one("SELECT chain_id FROM holdfast.blocker GROUP BY chain_id ORDER BY count(*) DESC LIMIT 1"),
        chain=one(f"SELECT id FROM holdfast.job_history WHERE {recent} AND next_id IS NOT NULL LIMIT 1"),
        long_chain=one(
            "SELECT chain_id FROM holdfast.job_history WHERE chain_id IS NOT NULL GROUP BY chain_id"
            " ORDER BY count(*) DESC LIMIT 1"
        ),
        missing=one("SELECT max(id) + 1 FROM holdfast.job"),
        deep=one("SELECT estate.id_at(now() - interval '7 days', 0)"),
    )
