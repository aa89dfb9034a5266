"""What the store answers about a claim: one closed set of words, the same in SQL and in Python."""

from __future__ import annotations

from enum import StrEnum


class Answer(StrEnum):
    """The answer to one claim that was finished, completed, renewed or reaped."""

    completed = "completed"
    failed = "failed"
    pending = "pending"
    """The job went back and waits."""
    cancelled = "cancelled"
    """The job is cancelled, by this call or before it; answered to a renewal: its holder is asked to stop."""
    busy = "busy"
    """Nothing was written: somebody else has the row locked. Ask again."""
    taken_by_another_worker = "taken_by_another_worker"
    already_completed = "already_completed"
    not_found = "not_found"
