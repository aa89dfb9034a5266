"""The result of one check of a command."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Verdict: TypeAlias = Literal["ok", "note", "wrong"]
"""`wrong`: a worker could not run so."""
CheckResult: TypeAlias = tuple[Verdict, str, str]
"""A verdict, the subject, and the text."""


class Finding(NamedTuple):
    """The result of a check of one subject of one database."""

    verdict: Verdict
    database: str
    subject: str
    message: str
