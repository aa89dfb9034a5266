"""The base of rows that pages show as they are: each is a part of an answer of the operations API."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer, WithJsonSchema

from holdfast._logs.masking import mask

Id = Annotated[
    int,
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,19}$"}),
]
ErrorText = Annotated[str, AfterValidator(mask)]
"""Masked when it is stored, and again here: rows may be older than the rule, or written by others."""


class Answer(BaseModel):
    """A part of an answer: never changed once it is made."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_serialization_defaults_required=True, use_attribute_docstrings=True
    )

    @classmethod
    def of(cls, *columns: Any) -> Self:
        """Return the answer whose fields are these columns of a row, in their order."""
        return cls.model_validate(dict(zip(cls.model_fields, columns, strict=True)))
