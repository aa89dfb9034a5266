"""The parts that all answers share."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer, WithJsonSchema

from holdfast._logs.masking import mask
from holdfast._ops.person import Role  # noqa: TC001 - pydantic reads the annotations

Id = Annotated[
    int, PlainSerializer(str, return_type=str), WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,19}$"})
]
Status = Literal["blocked", "pending", "processing", "completed", "failed", "cancelled"]
ErrorText = Annotated[str, AfterValidator(mask)]
"""Masked when it is stored, and again here: rows may be older than the rule, or written by others."""
Severity = Literal["critical", "warning"]


class Answer(BaseModel):
    """A part of an answer: never changed once it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Me(Answer):
    """The caller and the role."""

    name: str
    role: Role
    version: str
    """Of Holdfast."""


class Refusal(Answer):
    """Why a request was not answered."""

    error: str
    """A code, e.g. `not_found`."""
    message: str
    """For people: what is wrong, and what to do."""


class Done(Answer):
    """An action on something that is not a job was done."""

    done: Literal[True] = True
    message: str


class AuditLine(Answer):
    """An action of a person."""

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
