"""Dead letters, grouped by kind, error and the version of the application that made them. Run after `follow_ids`."""

from __future__ import annotations

import json
from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import TYPE_CHECKING, NamedTuple

from holdfast._store.answer import Answer, ErrorText, Id
from holdfast._store.search import scanned
from holdfast._store.statement import Row, Statement, nothing, one_or_none, statement, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast._store.search import Search, Span


class VersionFailures(Answer):
    """The dead letters of a group that one version of the application made."""

    version: str
    """As `HOLDFAST_APP_VERSION` named it."""
    jobs: int
    first_at: datetime
    """When the first of them ended."""
    last_at: datetime
    """When the last of them ended."""


class DeadLetterGroup(Answer):
    """Dead letters of one kind that failed for one reason."""

    kind: str
    queue: str
    error_code: str
    error: ErrorText | None
    """Of the newest."""
    jobs: int
    first_at: datetime
    last_at: datetime
    newest: Id
    dismissed_by: str | None
    """The person who dismissed the group, if no job of it has failed since."""
    dismissed_at: datetime | None
    """When the group was dismissed."""
    versions: list[VersionFailures]
    """Which versions of the application ran their last attempts, the latest to fail first; empty: it is not known."""


class DeadLetterScan(NamedTuple):
    jobs: int
    back_to: datetime | None
    groups: list[DeadLetterGroup]


class LastError(NamedTuple):
    text: str | None
    at: datetime


def group_dead_letters(
    which: Search, span: Span, *, scan: int, limit: int, dismissed: bool = False
) -> Statement[DeadLetterScan]:
    """Return the newest dead letters grouped by kind and error, without those that are being replayed.

    `dismissed`: with groups that were dismissed. Default: False.
    """

    def read(rows: Sequence[Row]) -> DeadLetterScan:
        groups = [
            DeadLetterGroup.of(*row[2:-1], [VersionFailures.of(*line) for line in json.loads(row[-1] or "[]")])
            for row in rows
            if row[2] is not None
        ]
        return DeadLetterScan(rows[0][0], rows[0][1], groups)

    params = scanned(which, span) | {"dismissed": dismissed, "scan": scan, "limit": limit}
    return statement("group_dead_letters", read, kind=which.kind, queue=which.queue, **params)


def dismiss_group(kind: str, queue: str, error_code: str, last_at: datetime, *, by: str) -> Statement[None]:
    """Dismiss a group of dead letters until a job of it fails later than `last_at`."""
    given = {"kind": kind, "queue": queue, "error_code": error_code, "last_at": time_text(last_at)}
    return statement("dismiss_group", nothing, **given, who=by)


def restore_group(kind: str, queue: str, error_code: str) -> Statement[bool]:
    """Show a dismissed group again; False when it was not dismissed."""
    return statement("restore_group", bool, kind=kind, queue=queue, error_code=error_code)


def read_last_error() -> Statement[LastError | None]:
    """Return the error of the latest dead letter. Run after `follow_ids`."""
    return statement("read_last_error", one_or_none(LastError))
