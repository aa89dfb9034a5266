"""The manifest: a small JSON object beside each file, written last. A file without one is not whole."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from datetime import date
from typing import Any, TypeAlias

from holdfast._archive.location import ArchiveError, manifest_name

Bytes: TypeAlias = bytes  # a field has that name
FORMAT = 1
"""The version of the manifest and of the files."""
LONGEST = 1024 * 1024
"""Bytes of a manifest: a table has at most 1,600 columns."""
_CHECKSUM = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    source: str
    """A family of history, or schema.table."""
    starts_on: date
    ends_on: date
    """The first day after the period."""
    part: int
    object: str | None
    """The name of the file. None: the period has no rows."""
    rows: int
    bytes: int
    checksum: str | None
    """SHA-256 of the file, in hex."""
    min_id: int | None
    max_id: int | None
    schema_version: int
    """The last migration of the database when it was exported."""
    columns: tuple[tuple[str, str], ...]
    """Name and type in PostgreSQL."""
    format: int = FORMAT

    def text(self) -> Bytes:
        """Return it as JSON."""
        plain = asdict(self) | {"starts_on": self.starts_on.isoformat(), "ends_on": self.ends_on.isoformat()}
        return json.dumps(plain, indent=2).encode() + b"\n"

    @classmethod
    def parse(cls, text: Bytes, *, name: str) -> Manifest:
        """Return the manifest in `text`. `name`: of its object.

        Raises ArchiveError unless it has each field with a value of its type, and describes the file beside it.
        """
        try:
            plain: dict[str, Any] = json.loads(text)
            columns = tuple((str(column), str(type_)) for column, type_ in plain.pop("columns"))
            days: dict[str, Any] = {key: date.fromisoformat(plain.pop(key)) for key in ("starts_on", "ends_on")}
            manifest = cls(**plain, **days, columns=columns)
            manifest._check(name)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
            raise ArchiveError(f"{name} is not a manifest that this version can read: {exc!s:.200}") from exc
        return manifest

    def _check(self, name: str) -> None:
        kinds = {"int": int, "str": str, "int | None": int | None, "str | None": str | None}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type in kinds and (isinstance(value, bool) or not isinstance(value, kinds[field.type])):
                raise ValueError(f"{field.name}: {field.type} expected, got {value!r:.60}")
        if self.format != FORMAT:
            raise ValueError(f"its format is {self.format}")
        if self.rows < 0 or self.bytes < 0 or self.part < 1:
            raise ValueError("a number is negative")
        if (self.object is None) != (self.rows == 0):
            raise ValueError(f"{self.rows} rows in the file {self.object!r:.200}")
        if self.object is not None and (
            manifest_name(self.object) != name or not _CHECKSUM.fullmatch(self.checksum or "")
        ):
            raise ValueError(f"it describes another file, {self.object!r:.200}, or has no checksum")
