"""The row of a worker in one database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(slots=True, eq=False)
class OwnRow:
    """The row under which a worker is known in one database. All its parts share this object.

    A worker whose row is gone or another's, for example after a restore from a backup, registers again: then `id`
    changes, in one place for all.
    """

    id: int = 0
    """0 until the database has answered for the first time."""
    identity: UUID | None = None
    """Distinguishes this worker from another one that has the same id after a restore. None: not checked."""
