"""`holdfast archive` with the bucket of a test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.commands import Output, holdfast

if TYPE_CHECKING:
    from tests.kit.archive import History

WRONG = {"AWS_SECRET_ACCESS_KEY": "hush"}
"""Credentials that the object store refuses."""


def command(history: History, *arguments: str, cwd: str | Path | None = None, **variables: str) -> Output:
    """Run a command on the database of a test."""
    return holdfast(*arguments, database=history.url, cwd=None if cwd is None else Path(cwd), **variables)


def archive(history: History, *arguments: str, cwd: str | Path | None = None, **variables: str) -> Output:
    """Run `holdfast archive` with the bucket of a test."""
    where = {
        "HOLDFAST_ARCHIVE_BUCKET": history.location.bucket,
        "HOLDFAST_ARCHIVE_REGION": history.location.region or "",
        "HOLDFAST_ARCHIVE_ENDPOINT": history.location.endpoint or "",
    }
    return command(history, "archive", *arguments, cwd=cwd, **(where | variables))


def flat(text: str) -> str:
    """Return a text with single spaces."""
    return " ".join(text.split())
