"""What every answer is made of."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer, WithJsonSchema

Id = Annotated[
    int, PlainSerializer(str, return_type=str), WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,19}$"})
]
Status = Literal["blocked", "pending", "processing", "completed", "failed", "cancelled"]
Severity = Literal["critical", "warning"]


class Answer(BaseModel):
    """A part of an answer: never changed once it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid")
