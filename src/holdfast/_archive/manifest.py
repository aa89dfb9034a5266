"""The manifest: a small JSON object beside each file, written last. A file without one is not whole."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, TypeAlias

from holdfast._archive.location import ArchiveError

Bytes: TypeAlias = bytes  # a field has that name
FORMAT = 1
"""The version of the manifest and of the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A description of one file."""

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
        """Return the manifest in `text`. `name`: of its object, for the error."""
        try:
            plain: dict[str, Any] = json.loads(text)
            columns = tuple((column, type_) for column, type_ in plain.pop("columns"))
            days: dict[str, Any] = {key: date.fromisoformat(plain.pop(key)) for key in ("starts_on", "ends_on")}
            return cls(**plain, **days, columns=columns)
        except (ValueError, TypeError, KeyError) as exc:
            raise ArchiveError(f"{name} is not a manifest that this version can read: {exc}") from exc
