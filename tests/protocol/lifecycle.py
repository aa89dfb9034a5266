"""The drawn diagram: which status may follow which, and through what. The page on the lifecycle is compared with it."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Status: TypeAlias = Literal["blocked", "pending", "processing", "completed", "failed", "cancelled"]

LIVE: Final = ("blocked", "pending", "processing")
ENDED: Final = ("completed", "failed", "cancelled")
NOWHERE: Final = "[*]"

# (from, to): the operations that may do it.
TRANSITIONS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    (NOWHERE, "pending"): ("enqueue", "replay", "finish", "complete"),
    (NOWHERE, "blocked"): ("enqueue", "replay", "finish", "complete"),
    ("pending", "processing"): ("claim",),
    ("pending", "blocked"): ("claim", "enqueue"),
    ("pending", "completed"): ("complete",),
    ("pending", "cancelled"): ("cancel",),
    ("pending", NOWHERE): ("delete",),
    ("blocked", "pending"): ("finish", "reap", "resume", "replay", "enqueue", "cancel", "complete", "delete"),
    ("blocked", "completed"): ("complete",),
    ("blocked", "cancelled"): ("cancel",),
    ("blocked", NOWHERE): ("delete",),
    ("processing", "pending"): ("finish", "reap"),
    ("processing", "completed"): ("finish", "complete"),
    ("processing", "failed"): ("finish", "reap"),
    ("processing", "cancelled"): ("finish", "reap"),
    ("processing", NOWHERE): ("delete",),
    ("completed", NOWHERE): ("retention", "delete"),
    ("failed", NOWHERE): ("retention", "delete"),
    ("cancelled", NOWHERE): ("retention", "delete"),
}
