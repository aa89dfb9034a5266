"""Who asks, and why they were refused."""

from __future__ import annotations

from holdfast.ops.answer.part import Answer
from holdfast.ops.role import Role  # noqa: TC001 - pydantic reads the annotations


class Me(Answer):
    """Who asks, and what they may."""

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
