"""The drawn diagram: which status may follow which, and through what. docs/lifecycle.md is compared with this."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Status: TypeAlias = Literal["blocked", "pending", "processing", "completed", "failed", "cancelled"]

LIVE: Final = ("blocked", "pending", "processing")
ENDED: Final = ("completed", "failed", "cancelled")
NOWHERE: Final = "[*]"

# (from, to): the operations that may do it.
TRANSITIONS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    (NOWHERE, "pending"): ("enqueue", "replay"),
    ("pending", "processing"): ("claim",),
    ("pending", "blocked"): ("claim",),
    ("pending", "cancelled"): ("cancel",),
    ("pending", NOWHERE): ("delete",),
    ("blocked", "pending"): ("finish", "reap", "resume", "replay", "enqueue", "delete"),
    ("blocked", NOWHERE): ("delete",),
    ("processing", "pending"): ("finish", "reap"),
    ("processing", "completed"): ("finish",),
    ("processing", "failed"): ("finish", "reap"),
    ("processing", "cancelled"): ("finish", "reap"),
    ("completed", NOWHERE): ("retention",),
    ("failed", NOWHERE): ("retention",),
    ("cancelled", NOWHERE): ("retention",),
}
