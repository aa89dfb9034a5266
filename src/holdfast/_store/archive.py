"""The archive in the database: how long rows are kept, what is to be exported, and the record of every file."""

from __future__ import annotations

from datetime import date, datetime  # noqa: TC003 - pydantic reads the annotations
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast._store.answer import Answer
from holdfast._store.statement import PINNED_PATH, Row, Statement, column, many, nothing, statement, text_array, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ExportState = Literal["exporting", "uploaded", "verified", "dropped"]

FAMILIES = ("job_history", "job_failed", "attempt", "event", "delivery", "run")
"""The families that are archived."""
JOB_FAMILIES = ("job_history", "job_failed")
"""Those that have jobs. An ended job is in one of them, and its attempts are in `attempt`."""
ID_COLUMN = {"attempt": "job_id", "delivery": "event_id"}
"""The column by which a family is sorted and searched, where that is not `id`."""
EXPORTS = "holdfast archive"
"""The name of the sessions that read rows for an export."""
# Without a report for this long, another process may export the period.
LEASE_MS = 30_000


class Retention(NamedTuple):
    """How long the rows of a family are kept."""

    family: str
    days: int
    archived: bool
    """Whether a day is dropped only when it is verified in the archive."""


class Period(NamedTuple):
    """A part of a source that is closed and can be exported: a day of a family, or a month of a table."""

    source: str
    starts_on: date
    ends_on: date
    """The first day after it."""
    part: int
    relation: str
    """The partitioned table that holds its rows, quoted."""
    at: str
    """The column by which it is partitioned."""
    rows_expected: int | None
    id: str | None = None
    """Of a table: the column to sort by."""


class ClosedMonth(NamedTuple):
    """A month of the application's rows in the schema `archive`."""

    partition: str
    rows_expected: int
    """An estimate; negative: there is none."""
    part: int | None
    """Of its last export; None: it was never exported."""
    state: ExportState | None


class Upload(NamedTuple):
    object: str | None
    """Its name in the bucket. None: the period has no rows."""
    rows: int
    bytes: int
    min_id: int | None
    max_id: int | None
    checksum: str | None
    """SHA-256, in hex."""


class Export(NamedTuple):
    """The record of one file."""

    source: str
    starts_on: date
    ends_on: date
    part: int
    state: ExportState
    started_at: datetime
    uploaded_at: datetime | None
    verified_at: datetime | None
    drop_eligible_at: datetime | None
    dropped_at: datetime | None
    running: bool
    """Whether a process is exporting it now."""
    rows_expected: int | None
    rows_done: int
    rows: int | None
    bytes: int | None
    min_id: int | None
    max_id: int | None
    schema_version: int | None
    object: str | None
    etag: str | None
    checksum: str | None
    error: str | None
    incomplete: bool
    """Whether the database has fewer rows than the file, so that both are kept until a person decides."""


class DroppableDay(NamedTuple):
    """A verified day whose retention has ended, and the commands that drop it, each outside a transaction."""

    source: str
    starts_on: date
    part: int
    object: str | None
    etag: str | None
    bytes: int | None
    commands: list[str]


class ArchiveSource(Answer):
    """The files of one source: a family of Holdfast's tables, or a table of the application."""

    source: str
    periods: int
    """How many files are on record: one for each day or month."""
    rows: int
    bytes: int
    first_day: date
    ends_on: date
    """The first day after the last period."""
    unfinished: int
    """Being exported, or to be exported again."""
    verified: int
    """Read back, and still in the database too."""
    dropped: int
    """Only in the archive."""
    next_drop: datetime | None
    """When the next verified period may be dropped; null: none is waiting for that."""


def read_retention() -> Statement[list[Retention]]:
    return statement("read_retention", many(Retention))


def clock_is_doubted() -> Statement[bool]:
    """Return whether nothing expires, because the clock leapt within the last day, or nothing had recorded it."""
    return statement("clock_is_doubted", value)


def confirm_clock() -> Statement[bool]:
    """Let rows expire by the server's clock; False: it was not in doubt."""
    return statement("confirm_clock", value)


def set_retention(family: str, days: int) -> Statement[None]:
    """Keep the rows of a family for `days` from now on: job_history, job_failed, event or run."""
    return statement("set_retention", nothing, family=family, days=days)


def set_archived(*, archived: bool) -> Statement[None]:
    """Keep days until they are verified in the archive, or no longer."""
    return statement("set_archived", nothing, archived=archived)


def closed_days(*, limit: int) -> Statement[list[Period]]:
    """Return days to export, oldest first."""
    return statement("closed_days", _periods, limit=limit)


def start_export(period: Period) -> Statement[int | None]:
    """Begin an export and return its token; None when another process exports it, or it is done."""
    return statement(
        "start_export",
        _value_or_none,
        **_key(period),
        ends_on=period.ends_on.isoformat(),
        rows_expected=period.rows_expected,
        lease_ms=LEASE_MS,
    )


def report_export(period: Period, token: int, *, rows_done: int) -> Statement[bool]:
    """Record the progress; return False when another process has taken over."""
    return statement("report_export", bool, **_key(period), token=token, rows_done=rows_done, lease_ms=LEASE_MS)


def record_upload(period: Period, token: int, upload: Upload, *, schema_version: int) -> Statement[bool]:
    return statement(
        "record_upload",
        bool,
        **_key(period),
        **upload._asdict(),
        token=token,
        schema_version=schema_version,
        lease_ms=LEASE_MS,
    )


def record_verified(period: Period, token: int, *, etag: str | None, keep_ms: int | None = None) -> Statement[bool]:
    """Record that the file was read back. `keep_ms`: how long a month is kept from now on; None: as retention says."""
    return statement("record_verified", bool, **_key(period), token=token, etag=etag, keep_ms=keep_ms)


def record_export_error(period: Period, token: int, error: str, *, incomplete: bool) -> Statement[bool]:
    """Record why an export failed, and let any process try again, unless the period is incomplete."""
    return statement("record_export_error", bool, **_key(period), token=token, error=error, incomplete=incomplete)


def export_again(export: DroppableDay | Export, error: str) -> Statement[bool]:
    """Have a verified period exported anew, since its file has changed or is gone.

    False: it is a day with fewer rows than its file, and both are kept; or it is no longer verified.
    """
    return statement("export_again", bool, **_key(export), error=error)


def export_as_it_is(source: str, starts_on: date) -> Statement[list[int]]:
    """Have the incomplete parts of a period exported, so that their files are replaced; return those parts."""
    return statement("export_as_it_is", column, source=source, starts_on=starts_on.isoformat())


def record_incomplete(export: Export, error: str) -> Statement[bool]:
    """Record that a verified month has fewer rows than its file, so that both are kept until a person decides."""
    return statement("record_incomplete", bool, **_key(export), error=error)


def export_months_again(source: str, months: Iterable[date]) -> Statement[None]:
    """Have months of a table exported anew, since rows were moved into them. Call it after that, in its transaction."""
    return statement(
        "export_months_again", nothing, source=source, months=text_array(month.isoformat() for month in months)
    )


def record_dropped(export: Export) -> Statement[bool]:
    return statement("record_dropped", bool, **_key(export))


def droppable_days(*, limit: int) -> Statement[list[DroppableDay]]:
    return statement("droppable_days", many(DroppableDay), limit=limit)


def droppable_months(source: str, *, limit: int) -> Statement[list[Export]]:
    """Return verified months of a table whose time has come, oldest first."""
    return statement("droppable_months", many(Export), source=source, limit=limit)


def closed_months(source: str, archived: str, *, comment: str, hot: str) -> Statement[list[ClosedMonth]]:
    """Return the months of a table to export, oldest first.

    `archived`: its copy in the schema `archive`, quoted. `comment`: that of the copy; a table with another one has no
    months.
    """
    return statement("closed_months", many(ClosedMonth), source=source, archived=archived, comment=comment, hot=hot)


def is_archived_month(month: str, archived: str, *, comment: str) -> Statement[bool]:
    """Return whether a table is a month of a copy in the schema `archive` that has this comment. Names are quoted."""
    return statement("is_archived_month", value, month=month, archived=archived, comment=comment)


def least_rows(source: str, starts_on: str, part: int, token: int) -> Statement[int | None]:
    """Return how many rows the file of an export must have, as it replaces one with so many.

    None: the export has lost its record to another one. A first export may have any number of rows.
    """
    return statement("least_rows", _value_or_none, source=source, starts_on=starts_on, part=part, token=token)


def count_others_active() -> Statement[int]:
    """Return how many sessions the server works for now, without those of exports."""
    return statement("count_others_active", value, exports=EXPORTS)


def read_settings() -> Statement[None]:
    """Set, for the transaction, the form of values in files, and that rows are read by an index."""
    return statement("read_settings", nothing, path=PINNED_PATH)


def move_settings() -> Statement[None]:
    """Set, for the transaction, what moving rows and dropping months need."""
    return statement("move_settings", nothing)


def load_settings() -> Statement[None]:
    """Set, for the transaction, the form that values have in files."""
    return statement("load_settings", nothing)


def list_exports(
    *, source: str | None = None, since: date | None = None, until: date | None = None, limit: int = 1_000
) -> Statement[list[Export]]:
    """Return records of one source or all, of periods that start in a range of days.

    First those of exports that run, then others that are not verified, then the newest.
    """
    return statement("list_exports", many(Export), source=source, since=_day(since), until=_day(until), limit=limit)


def unfinished_exports(*, limit: int = 100) -> Statement[list[Export]]:
    """Return the records of files that are not verified or incomplete, oldest first."""
    return statement("unfinished_exports", many(Export), limit=limit)


def find_export(source: str, starts_on: date) -> Statement[list[Export]]:
    return statement("find_export", many(Export), source=source, starts_on=starts_on.isoformat())


def exports_with_id(
    sources: Sequence[str], id_: int, *, since: date | None = None, until: date | None = None, limit: int = 100
) -> Statement[list[Export]]:
    """Return the files that may hold a row with this id, the likeliest first, which is the oldest.

    `since`, `until`: the first and the last day whose files are returned. Default: all days.
    """
    return statement(
        "exports_with_id",
        many(Export),
        sources=text_array(sources),
        id=id_,
        since=_day(since),
        until=_day(until),
        limit=limit,
    )


def archive_totals() -> Statement[list[ArchiveSource]]:
    return statement("archive_totals", many(ArchiveSource.of))


def _key(period: Period | Export | DroppableDay) -> dict[str, Any]:
    return {"source": period.source, "starts_on": period.starts_on.isoformat(), "part": period.part}


def _day(day: date | None) -> str | None:
    return None if day is None else day.isoformat()


def _periods(rows: Sequence[Row]) -> list[Period]:
    periods = [Period(*row) for row in rows]
    # The server has no estimate before it has analyzed a table.
    return [period._replace(rows_expected=None) if (period.rows_expected or 0) < 0 else period for period in periods]


def _value_or_none(rows: Sequence[Row]) -> Any:
    return value(rows) if rows else None
