"""The archive endpoints: what is kept and exported, and one job that is read from the files within a bounded time."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._archive.location import translated
from holdfast._archive.search import find
from holdfast._logs.log import Log
from holdfast._logs.masking import mask
from holdfast._ops.caller import RequestRefused
from holdfast._ops.responses.archive import (
    ArchivedJob,
    ArchiveFile,
    ArchiveSummary,
    ExportLine,
    ExportPage,
    RetentionLine,
)
from holdfast._store.archive import (
    FAMILIES,
    JOB_FAMILIES,
    archive_totals,
    exports_with_id,
    list_exports,
    read_retention,
)
from holdfast._store.inspect import AttemptLine, list_attempts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast._archive.location import Location
    from holdfast._archive.search import Found
    from holdfast._ops.caller import Person, Shares
    from holdfast._ops.requests import ExportSearch
    from holdfast._ops.service import Service
    from holdfast._store.archive import Export

log = Log(__name__)

SECONDS = 10.0
"""The longest that a caller waits for the object store."""
MOST_READERS = 3
"""So many jobs are read from files at once. A thread that a caller no longer waits for still counts."""
CHANGEABLE = ("job_history", "job_failed", "event", "run")
_MOST_FILES = 100
_MOST_ATTEMPTS = 200
_MOST_TRACEBACKS = 20
_MOST_LOGS = 5
# Of one request to the object store. The thread looks at the clock between two files.
_REQUEST = timedelta(seconds=5)


class FoundInFiles(NamedTuple):
    rows: list[Found]
    complete: bool
    """Whether there was time to read every file."""


class FileSearch(NamedTuple):
    job_id: int
    files: Sequence[Export]
    ends: float
    """When the caller stops waiting, by the monotonic clock."""
    first: bool = False
    """Whether to stop at the first file with a row."""


class ArchiveEndpoints:
    """The archive endpoints of one process."""

    def __init__(self, location: Location | None) -> None:
        """`location`: None when no bucket is set for this process."""
        self._location = location
        self._readers = threading.BoundedSemaphore(MOST_READERS)

    async def summary(self, service: Service) -> ArchiveSummary:
        async with service.reading() as transaction:
            totals = await transaction.run(archive_totals())
            retention = [kept for kept in await transaction.run(read_retention()) if kept.family in FAMILIES]
        drops = [total.next_drop for total in totals if total.next_drop is not None]
        return ArchiveSummary(
            configured=self._location is not None,
            bucket=None if self._location is None else mask(self._location.address),
            archived=any(kept.archived for kept in retention),
            sources=totals,
            retention=[RetentionLine(**kept._asdict(), changeable=kept.family in CHANGEABLE) for kept in retention],
            next_drop=min(drops, default=None),
        )

    async def exports(self, service: Service, search: ExportSearch) -> ExportPage:
        given = search.model_dump(exclude={"limit"})
        found = await service.read(list_exports(**given, limit=search.limit + 1))
        return ExportPage(
            items=[_line(export) for export in found[: search.limit]], complete=len(found) <= search.limit
        )

    async def job(self, service: Service, job_id: int, by: Person, shares: Shares) -> ArchivedJob:
        """Read a job from the files. The caller's turn at the database is not held while the object store is read."""
        async with shares.turn(by), service.reading() as transaction:
            files = await transaction.run(exports_with_id(JOB_FAMILIES, job_id, limit=_MOST_FILES + 1))
        if not files:
            raise _not_found(f"No file of the archive can hold job {job_id}: it never was, or was deleted.")
        ends = time.monotonic() + SECONDS
        jobs = await self._read(FileSearch(job_id, files[:_MOST_FILES], ends, first=True))
        if not jobs.rows:
            raise _not_in_files(job_id, files, complete=jobs.complete)
        row = _row(jobs.rows[0].row)
        days = {"since": row["created_at"].date(), "until": row["finished_at"].date()}
        async with shares.turn(by), service.reading() as transaction:
            files = await transaction.run(exports_with_id(["attempt"], job_id, **days, limit=_MOST_FILES + 1))
            stored = await transaction.run(list_attempts(job_id))
        tried = await self._read(FileSearch(job_id, files[:_MOST_FILES], ends))
        lines = _attempts(row, (one.row for one in tried.rows))
        kept = {(line.attempt, line.ended_at): line for line in lines}
        # Attempts of other days may still be in the database, which also has the names of workers.
        kept |= {(one.attempt, one.ended_at): one for one in stored}
        ordered = sorted(kept.values(), key=lambda line: line.ended_at)[-_MOST_ATTEMPTS:]
        async with shares.turn(by):
            story = await service.archived_job(row, ordered)
        used = {one.export: None for one in (jobs.rows[0], *tried.rows)}
        return ArchivedJob(
            job=story,
            files=[ArchiveFile(source=x.source, starts_on=x.starts_on, object=x.object or "") for x in used],
            complete=tried.complete and len(files) <= _MOST_FILES,
        )

    async def _read(self, search: FileSearch) -> FoundInFiles:
        """Read the files in a thread, and stop waiting for it when the time of the search ends."""
        if self._location is None:
            message = (
                f"Job {search.job_id} may be in the archive, and this process cannot read it: set "
                "HOLDFAST_ARCHIVE_BUCKET for it, as for the workers."
            )
            raise RequestRefused(503, "archive_not_configured", message, retry_after=60)
        if not search.files:
            return FoundInFiles([], complete=True)
        if not self._readers.acquire(blocking=False):
            message = f"{MOST_READERS} other jobs are read from the archive just now: try again in a few seconds."
            raise RequestRefused(503, "archive_busy", message, retry_after=5)
        # Shielded: a thread cannot be cancelled, and frees its place itself.
        task = asyncio.ensure_future(asyncio.to_thread(self._read_files, self._location, search))
        try:
            async with asyncio.timeout(search.ends - time.monotonic()):
                result = await asyncio.shield(task)
        except TimeoutError:
            message = f"The object store did not answer within {SECONDS:.0f} seconds: try again later."
            raise RequestRefused(503, "archive_too_slow", message, retry_after=30) from None
        if isinstance(result, Exception):
            raise _unreadable(result)
        return result

    def _read_files(self, location: Location, search: FileSearch) -> FoundInFiles | Exception:
        """Return the rows, or the error: the caller may have stopped waiting for it."""
        try:
            return _find(location, search)
        except Exception as exc:  # noqa: BLE001 - the caller decides by its type
            return exc
        finally:
            self._readers.release()


def _find(location: Location, search: FileSearch) -> FoundInFiles:
    store = location.open(timeout=_REQUEST)
    # Earlier than the caller stops waiting, so that a job is answered though not all of its attempts were read.
    ends = search.ends - 0.2 * SECONDS
    found: list[Found] = []
    with translated():
        for export in search.files:
            if time.monotonic() > ends:
                return FoundInFiles(found, complete=False)
            found += find(store, [export], search.job_id)
            if found and search.first:
                break
    return FoundInFiles(found, complete=True)


def _unreadable(exc: Exception) -> RequestRefused:
    if isinstance(exc, ImportError):
        message = 'This process cannot read the archive: install the extra, `pip install "holdfast-pg[archive]"`.'
        return RequestRefused(503, "archive_not_configured", message, retry_after=60)
    log.warning("the archive cannot be read", exc_info=exc)
    message = "The archive cannot be read just now; the log of this process has the reason. Try again later."
    return RequestRefused(503, "archive_unreachable", message, retry_after=30)


def _not_in_files(job_id: int, files: Sequence[Export], *, complete: bool) -> RequestRefused:
    """Return why a job was not found: it never was, or not every file that may hold it was read."""
    ask = f"`holdfast archive query --job {job_id}` reads all of them."
    if not complete:
        message = f"There was not enough time to read every file that may hold job {job_id}: {ask}"
        return RequestRefused(503, "archive_too_slow", message, retry_after=30)
    if len(files) > _MOST_FILES:
        message = f"Job {job_id} is not in the {_MOST_FILES} oldest files that may hold it, and there are more: {ask}"
        return RequestRefused(503, "archive_too_many_files", message)
    return _not_found(f"Job {job_id} is in none of the files that could hold it: it never was, or was deleted.")


def _not_found(message: str) -> RequestRefused:
    return RequestRefused(404, "not_found", message)


def _line(export: Export) -> ExportLine:
    progress = None
    if export.running and export.state == "uploaded":
        progress = 1.0
    elif export.running and export.rows_expected:
        progress = min(1.0, export.rows_done / export.rows_expected)
    fields = export._asdict()
    return ExportLine(
        progress=progress, **{name: fields[name] for name in ExportLine.model_fields if name != "progress"}
    )


def _row(row: Any) -> dict[str, Any]:
    """Return the row of a file as `read_job` returns one: JSON is parsed."""
    texts = {name: row.get(name) for name in ("payload", "headers", "result")}
    return {**row, **{name: None if text is None else json.loads(text) for name, text in texts.items()}}


def _attempts(job: dict[str, Any], rows: Iterable[Any]) -> list[AttemptLine]:
    """Return the attempts in the files. A first attempt that completed has no row there, as in the database."""
    given = sorted(rows, key=lambda row: row["ended_at"])[-_MOST_ATTEMPTS:]
    lines = [
        _attempt(row, traceback=left <= _MOST_TRACEBACKS, log=left <= _MOST_LOGS)
        for left, row in zip(range(len(given), 0, -1), given, strict=True)
    ]
    alone = job["attempt"] == 1 and job.get("first_due_at") is None
    if job["status"] == "completed" and alone and job["worker_id"] is not None:
        due, waited = job["available_at"], job.get("waited_ms")
        first = {
            "outcome": "completed",
            "error_code": None,
            "error": None,
            "ended_at": job["finished_at"],
            "due_at": due,
            "claimed_at": None if waited is None else due + timedelta(milliseconds=waited),
            **{name: job[name] for name in ("attempt", "worker_id", "ran_ms")},
        }
        lines.append(_attempt(first, traceback=False, log=False))
    return lines


def _attempt(row: Any, *, traceback: bool, log: bool) -> AttemptLine:
    ran = row["ran_ms"]
    ended = row["ended_at"].astimezone(UTC)
    due, claimed = (row[name] and row[name].astimezone(UTC) for name in ("due_at", "claimed_at"))
    return AttemptLine(
        attempt=row["attempt"],
        outcome=row["outcome"],
        ended_at=ended,
        worker=row["worker_id"],
        worker_name=None,
        error_code=row["error_code"],
        error=row["error"],
        started_at=claimed if ran is None else ended - timedelta(milliseconds=ran),
        seconds=None if ran is None else ran / 1_000,
        traceback=row.get("traceback") if traceback else None,
        due_at=due,
        waited=(claimed - due).total_seconds() if claimed and due else None,
        app_version=None,
        log=row.get("log") if log else None,
    )
