"""Answers about the archive: what is kept, what is in files, and a job that was read from them."""

from __future__ import annotations

from datetime import date, datetime  # noqa: TC003 - pydantic reads the annotations

from holdfast._ops.responses.job import Edited, Items, JobStory
from holdfast._store.answer import Answer, ErrorText
from holdfast._store.archive import ArchiveSource, ExportState  # noqa: TC001 - as above


class RetentionLine(Edited):
    """How long ended rows of a family stay in the database."""

    edited = ("days",)

    family: str
    days: int
    archived: bool
    """Whether a day is dropped only when it is verified in the archive."""
    changeable: bool
    """False: it follows another family, as attempts follow their jobs."""


class ArchiveSummary(Answer):
    configured: bool
    """Whether a bucket is set for the process that answers."""
    bucket: str | None
    """Its address; null: none is set here."""
    archived: bool
    """Whether days wait in the database until they are verified in the archive."""
    sources: list[ArchiveSource]
    retention: list[RetentionLine]
    next_drop: datetime | None
    """The earliest of all sources."""


class ExportLine(Answer):
    """The record of one file: one day of a family, or one month of a table."""

    source: str
    starts_on: date
    ends_on: date
    """The first day after it."""
    part: int
    """1, or more for a period that got rows again after it was dropped."""
    state: ExportState
    running: bool
    """Whether a process exports it now."""
    progress: float | None
    """Of a running export, from 0 to 1, by an estimate of its rows; null: not known, or not running."""
    rows_done: int
    rows: int | None
    bytes: int | None
    started_at: datetime
    uploaded_at: datetime | None
    verified_at: datetime | None
    drop_eligible_at: datetime | None
    """From then on it may be dropped from the database; null: it is not verified."""
    dropped_at: datetime | None
    object: str | None
    """The name of the file in the bucket; null: not uploaded yet, or the period has no rows."""
    checksum: str | None
    """SHA-256 of the file, in hex."""
    error: ErrorText | None
    """Of the last try."""


class ExportPage(Items):
    items: list[ExportLine]
    """First those that run, then others that are not verified, such as failed ones, then the newest."""
    complete: bool
    """False: there are more than `limit`. Ask for fewer days at once, with `since` and `until`."""


class ArchiveFile(Answer):
    source: str
    starts_on: date
    object: str


class ArchivedJob(Answer):
    """A job as it was when its day was exported, with its attempts."""

    job: JobStory
    files: list[ArchiveFile]
    """Those in which the job and its attempts were found."""
    complete: bool
    """False: not every file that may hold attempts was read, since there was not enough time, or there are too many."""
