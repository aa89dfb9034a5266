"""Values that do not travel as JSON: objects that cannot be serialized, and sets that would arrive as lists."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from holdfast._model.json_numbers import SCALARS, SERIALIZER, join_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import TypeAdapter

_SETS = (set, frozenset)


def find_unserializable(value: object, path: str = "") -> str | None:
    """Return what in a value cannot be serialized, with its place and the cure; None if nothing is found."""
    if type(value) in SCALARS:
        return None
    if parts := list(_named(value)):
        return next(
            (found for name, part in parts if (found := find_unserializable(part, join_path(path, name)))), None
        )
    try:
        to_jsonable_python(value)
    except ValueError:
        return (
            f"{path or 'the value'} is of type {type(value).__name__}, which is not JSON-serializable: pass its id or "
            "plain values, or annotate a type that pydantic knows"
        )
    return None


def find_untyped_set(adapter: TypeAdapter[Any], value: object, data: object) -> str | None:
    """Return which set in a value would be read as a list, because no annotation says that it is a set; else None."""
    if not _has_sets(value):
        return None
    # Data that only another service can read is not compared.
    with suppress(ValidationError):
        if path := _untyped(value, adapter.validate_python(data), ""):
            return f"{path} is a set, which JSON does not have: pass a list, or annotate it, such as set[int]"
    return None


def _untyped(given: object, read: object, path: str) -> str | None:
    if isinstance(given, _SETS):
        return path if isinstance(read, list) else None
    arrived = dict(_named(read))
    pairs = ((name, part, arrived[name]) for name, part in _named(given) if name in arrived)
    return next((found for name, part, other in pairs if (found := _untyped(part, other, join_path(path, name)))), None)


def _has_sets(value: object) -> bool:
    return isinstance(value, _SETS) or any(type(part) not in SCALARS and _has_sets(part) for _, part in _named(value))


def _named(value: object) -> Iterable[tuple[object, object]]:
    """Return the parts of a collection, a dataclass or a model, each with its name or position."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, (list, tuple, *_SETS)):
        return enumerate(value)
    if hasattr(type(value), SERIALIZER) or hasattr(type(value), "__dataclass_fields__"):
        return getattr(value, "__dict__", {}).items()
    return ()
