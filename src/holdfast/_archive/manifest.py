"""The manifest: a small JSON object beside each file, written last. A file without one is not whole."""

from __future__ import annotations

from datetime import date  # noqa: TC003 - pydantic reads the annotations
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from holdfast._archive.location import ArchiveError, manifest_name
from holdfast._logs.failure import Failure

Bytes: TypeAlias = bytes  # a field has that name
LONGEST = 1024 * 1024
"""Bytes of a manifest: a table has at most 1,600 columns."""


class Manifest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    source: str
    """A family of history, or schema.table."""
    starts_on: date
    ends_on: date
    """The first day after the period."""
    part: PositiveInt
    object: str | None
    """The name of the file. None: the period has no rows."""
    rows: NonNegativeInt
    bytes: NonNegativeInt
    checksum: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None
    """SHA-256 of the file, in hex."""
    min_id: int | None
    max_id: int | None
    schema_version: int
    """The last migration of the database when it was exported."""
    columns: tuple[tuple[str, str], ...]
    """Name and type in PostgreSQL."""
    format: Literal[1] = 1
    """The version of the manifest and of the files."""

    def text(self) -> Bytes:
        """Return it as JSON."""
        return self.model_dump_json(indent=2).encode() + b"\n"

    @classmethod
    def parse(cls, text: Bytes, *, name: str) -> Manifest:
        """Return the manifest in `text`. `name`: of its object.

        Raises ArchiveError unless it has each field with a value of its type, and describes the file beside it.
        """
        try:
            manifest = cls.model_validate_json(text)
            _check(manifest, name)
        except ValueError as exc:
            reason = Failure.of(exc).text
            raise ArchiveError(f"{name} is not a manifest that this version can read: {reason:.200}") from exc
        return manifest


def _check(manifest: Manifest, name: str) -> None:
    if (manifest.object is None) != (manifest.rows == 0):
        raise ValueError(f"{manifest.rows} rows in the file {manifest.object!r:.200}")
    if manifest.object is not None and (manifest_name(manifest.object) != name or manifest.checksum is None):
        raise ValueError(f"it describes another file, {manifest.object!r:.200}, or has no checksum")
