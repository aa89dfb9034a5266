"""Why a command ends early."""

from __future__ import annotations


class Stop(Exception):  # noqa: N818 - a name says what happened
    """A message for the person at the terminal, and the exit status."""

    def __init__(self, message: str, *, status: int = 1) -> None:
        super().__init__(message)
        self.status = status
