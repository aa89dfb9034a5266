"""Why a running job was told to stop."""

from __future__ import annotations

from enum import StrEnum


class AbortReason(StrEnum):
    """The same words in Python, SQL, logs and metrics."""

    taken_by_another_worker = "taken_by_another_worker"
    already_completed = "already_completed"
    not_found = "not_found"
    error = "error"
    timeout = "timeout"
    cancelled = "cancelled"
    shutdown = "shutdown"
