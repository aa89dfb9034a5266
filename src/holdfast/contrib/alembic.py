"""Alembic: keeps autogenerate away from the schema `holdfast`."""

from __future__ import annotations

from typing import Any

__all__ = ["include_name"]


def include_name(name: str | None, type_: str, _parents: Any) -> bool:
    """Exclude the schema `holdfast` from an autogenerate over all schemas: `context.configure(include_name=…)`.

    >>> include_name("holdfast", "schema", {}), include_name("shop", "schema", {})
    (False, True)
    """
    return not (type_ == "schema" and name == "holdfast")
