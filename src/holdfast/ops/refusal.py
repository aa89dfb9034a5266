"""Why a request is not answered."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - a refusal is an answer, not a fault of ours
    """An answer other than 200: its HTTP status, a code for programs, a message for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
