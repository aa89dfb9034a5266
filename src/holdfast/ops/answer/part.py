"""What every answer is made of."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer, WithJsonSchema

from holdfast.masking import mask

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
