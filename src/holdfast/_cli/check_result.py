"""The result of one check of a command."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Verdict: TypeAlias = Literal["ok", "note", "wrong", "missing"]
CheckResult: TypeAlias = tuple[Verdict, str, str]
"""A verdict, the subject, and the text."""


class Finding(NamedTuple):
    """The result of a check of one subject of one database."""

    verdict: Verdict
    database: str
    subject: str
    message: str

    @property
    def is_bad(self) -> bool:
        """Whether a worker could not run so."""
        return self.verdict in {"wrong", "missing"}
