"""What was done, and by whom."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import Any, Literal

from holdfast.ops.answer.part import Answer, Id
from holdfast.ops.role import Role  # noqa: TC001 - pydantic reads the annotations


class Done(Answer):
    """An action on something that is not a job was done."""

    done: Literal[True] = True
    message: str


class AuditLine(Answer):
    """What a person did."""

    id: Id
    at: datetime
    who: str
    credential: str | None
    """How they came in: which token, session or issuer."""
    address: str | None
    """Of the client."""
    role: Role
    action: str
    """E.g. `jobs.retry`, `queue.pause`."""
    target: str | None
    jobs: int | None
    """On how many, where it was done to jobs."""
    ids: list[Id] | None
    """On which."""
    detail: dict[str, Any]


class AuditPage(Answer):
    entries: list[AuditLine]
    """Newest first."""
    next: Id | None
