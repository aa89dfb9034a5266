"""Reads jobs and workers from the database on the test's own connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import psycopg

from holdfast._drivers import run_sync
from holdfast._store.enqueue import enqueue_jobs
from holdfast._store.search import cancel_job

if TYPE_CHECKING:
    from types import TracebackType

    from holdfast import NewJob

_JOB = """
    SELECT status, attempt, result, error_code, error, locked_by FROM (
        SELECT id, status::text, attempt, NULL::json AS result, last_error_code AS error_code, last_error AS error,
            locked_by FROM holdfast.job
        UNION ALL
        SELECT id, status::text, attempt, result, last_error_code, last_error, worker_id FROM holdfast.job_history
        UNION ALL
        SELECT id, status::text, attempt, result, last_error_code, last_error, worker_id FROM holdfast.job_failed
    ) AS job WHERE id = %s
"""


class Found(NamedTuple):
    status: str
    attempt: int
    result: Any
    error_code: str | None
    error: str | None
    worker: int | None


class Ledger:
    def __init__(self, url: str) -> None:
        self.url = url
        self.conn = psycopg.connect(url, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.conn.close()

    def rows(self, query: str, *params: object) -> list[tuple[Any, ...]]:
        return self.conn.execute(query.encode(), params).fetchall()

    def value(self, query: str, *params: object) -> Any:
        return self.rows(query, *params)[0][0]

    def do(self, query: str, *params: object) -> None:
        self.conn.execute(query.encode(), params)

    def enqueue(self, *jobs: NewJob[Any]) -> list[int]:
        return [handle.id for handle in run_sync(self.conn, enqueue_jobs(jobs))]

    def enqueue_one(self, job: NewJob[Any]) -> int:
        return self.enqueue(job)[0]

    def cancel(self, job: int) -> str:
        return run_sync(self.conn, cancel_job(job))

    def job(self, job: int) -> Found:
        [row] = self.rows(_JOB, job)
        return Found._make(row)

    def status(self, job: int) -> str:
        return self.job(job).status

    def statuses(self) -> dict[str, int]:
        """Count every job by where it stands."""
        tables = ("job", "job_history", "job_failed")
        found = " UNION ALL ".join(f"SELECT status FROM holdfast.{table}" for table in tables)
        return dict(self.rows(f"SELECT status::text, count(*) FROM ({found}) AS job GROUP BY 1"))

    def attempts(self, job: int) -> list[tuple[int, str]]:
        return self.rows("SELECT attempt, outcome::text FROM holdfast.attempt WHERE job_id = %s ORDER BY ended_at", job)

    def completed(self) -> int:
        found: int = self.value("SELECT count(*) FROM holdfast.job_history WHERE status = 'completed'")
        return found

    def wasted(self) -> list[tuple[Any, ...]]:
        """Jobs that needed, or have used up, more than one attempt."""
        return self.rows("SELECT id, attempt FROM holdfast.job_history WHERE attempt > 1") + self.rows(
            "SELECT id, attempt FROM holdfast.job WHERE attempt > CASE WHEN status = 'processing' THEN 1 ELSE 0 END"
        )

    def sessions(self) -> int:
        """How many connections workers have to this database."""
        found: int = self.value(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'holdfast'"
        )
        return found

    def terminate_sessions(self) -> int:
        return len(
            self.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'holdfast'"
            )
        )
