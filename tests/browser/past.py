"""Weeks of a shop, archived: a day that has left, one that is verified, and one that is not exported yet."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast._drivers import run, run_sync
from holdfast._store.archive import closed_days, record_export_error, report_export, start_export
from tools.seaweedfs import REGION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast._archive.location import Location
    from holdfast._store.archive import Period
    from tests.kit.archive import History
    from tools.seaweedfs import SeaweedFS


@dataclass(frozen=True)
class Exporting:
    """An export that a process has begun."""

    history: History
    period: Period
    token: int

    async def report(self, rows_done: int) -> None:
        async with self.history.connected() as conn:
            assert await run(conn, report_export(self.period, self.token, rows_done=rows_done))

    async def fail(self, error: str) -> None:
        async with self.history.connected() as conn:
            assert await run(conn, record_export_error(self.period, self.token, error, incomplete=False))


@dataclass(frozen=True)
class Past:
    history: History
    left_job: int
    left_day: str
    kept_day: str
    open_day: str

    @asynccontextmanager
    async def exporting(self, *, rows_done: int, of: int) -> AsyncIterator[Exporting]:
        """Export the open day's jobs, as far as its records say, until the end of the block."""
        async with self.history.connected() as conn:
            days = await run(conn, closed_days(limit=100))
            period = next(day for day in days if (day.source, str(day.starts_on)) == ("job_history", self.open_day))
            token = await run(conn, start_export(period._replace(rows_expected=of)))
        assert token is not None
        export = Exporting(self.history, period, token)
        await export.report(rows_done)
        try:
            yield export
        finally:
            run_sync(self.history.conn, record_export_error(period, token, "the process was stopped", incomplete=False))


def variables(store: SeaweedFS, location: Location) -> dict[str, str]:
    """Return what a process needs to read the archive."""
    return {
        "HOLDFAST_ARCHIVE_BUCKET": location.bucket,
        "HOLDFAST_ARCHIVE_REGION": REGION,
        "HOLDFAST_ARCHIVE_ENDPOINT": store.url,
        **store.environment,
    }


async def live_for_weeks(history: History, *, kept_days: int = 1) -> Past:
    """Archive a day that then leaves, and some that stay; leave a newer one that is not exported yet."""
    history.conn.execute("SELECT holdfast.set_archived(true)")
    left_day = history.day(
        100,
        40,
        payload="json_build_object('to', 'customer' || n || '@example.org', 'password', 'hush')",
        attempt="2",
        worker_id="7",
        ran_ms="40",
    )
    history.conn.execute(
        "INSERT INTO holdfast.attempt (job_id, ended_at, worker_id, outcome, attempt, ran_ms, error_code, error) "
        f"SELECT h.id, '{left_day} 09:00+00'::timestamptz + t.n * interval '1 hour', 7, t.outcome::holdfast.outcome, "
        "t.n, 1500, t.code, t.error FROM holdfast.job_history h, "
        "(VALUES (1, 'retry', 'SMTPError', 'mailbox full'), (2, 'completed', NULL, NULL)) "
        "AS t (n, outcome, code, error)"
    )
    left_job: int = history.value("SELECT min(id) FROM holdfast.job_history")
    kept = [history.day(6 + n, 120 * (7 + n) - 37 * n * n) for n in range(kept_days)]
    await history.export()
    await history.cleanup()
    open_day = history.day(3, 100)
    return Past(history, left_job, left_day, kept[0], open_day)
