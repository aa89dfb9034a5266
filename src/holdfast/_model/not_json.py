"""Values that JSON does not have: NaN and the infinities, objects that cannot be serialized, and sets.

NaN and the infinities are refused, and never stored as null. A set would arrive as a list.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import SchemaSerializer, to_jsonable_python

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import TypeAdapter

_SCALARS = frozenset({str, int, float, bool, type(None)})
_SETS = (set, frozenset)
_SEQUENCES = (list, tuple, *_SETS)
_CONTAINERS = frozenset({dict, list})
# The attribute of pydantic's models and dataclasses.
_SERIALIZER = "__pydantic_serializer__"
_LONGEST_PATH = 100


class NonFinite(NamedTuple):
    """Such a number in a value."""

    path: str
    """Names and positions from the outside in, such as `readings.0`. Empty if the value is the number."""
    number: float

    def __str__(self) -> str:
        name = "NaN" if math.isnan(self.number) else "Infinity" if self.number > 0 else "-Infinity"
        place = self.path if len(self.path) <= _LONGEST_PATH else f"{self.path[:_LONGEST_PATH]}…"
        return f"{place or 'the value'} is {name}, which JSON does not have: pass None or a string instead"


def find_non_finite(data: object, path: str = "") -> NonFinite | None:
    """Return the first such number in plain JSON data, or None."""
    if isinstance(data, float):
        return None if math.isfinite(data) else NonFinite(path, data)
    return next((found for name, part in _named(data) if (found := find_non_finite(part, _join(path, name)))), None)


def keep_non_finite(adapter: TypeAdapter[Any]) -> None:
    """Let an adapter keep such numbers in the data that it returns, so that the codec refuses them.

    Pydantic would replace those in values without a type, such as Any, by None.
    """
    # A schema whose construction was deferred is constructed when it is read.
    adapter.core_schema.get("type")
    if isinstance(adapter.core_schema, dict):
        adapter.serializer = SchemaSerializer(adapter.core_schema, {"ser_json_inf_nan": "constants"})


def find_lost(adapter: TypeAdapter[Any], value: object, data: object) -> NonFinite | None:
    """Return the first such number of a value that is None in its JSON data. `adapter`: of the value.

    A model inside a value without a type is converted by its own serializer, which replaces them.
    """
    if not _has_none(data) or not _has_models(_members(value)):
        return None
    return _lost(adapter.dump_python(value, mode="python", by_alias=True, warnings=False), data, "")


def find_unserializable(value: object, path: str = "") -> str | None:
    """Return what in a value cannot be serialized, with its place and the cure; None if nothing is found."""
    if type(value) in _SCALARS:
        return None
    if parts := list(_named(value)):
        return next((found for name, part in parts if (found := find_unserializable(part, _join(path, name)))), None)
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


def _lost(kept: object, data: object, path: str) -> NonFinite | None:
    if data is None:
        return NonFinite(path, kept) if isinstance(kept, float) and not math.isfinite(kept) else None
    if type(data) not in _CONTAINERS:
        return None
    for inner, (name, part) in zip(_members(kept), _named(data), strict=False):
        # A path is written only where it may be needed.
        if (part is None or type(part) in _CONTAINERS) and (found := _lost(inner, part, _join(path, name))):
            return found
    return None


def _has_models(values: Iterable[object]) -> bool:
    for value in values:
        type_ = type(value)
        if type_ not in _SCALARS and (hasattr(type_, _SERIALIZER) or _has_models(_members(value))):
            return True
    return False


def _has_none(data: object) -> bool:
    if data is None:
        return True
    for part in _members(data) if type(data) in _CONTAINERS else ():
        if part is None or (type(part) in _CONTAINERS and _has_none(part)):
            return True
    return False


def _untyped(given: object, read: object, path: str) -> str | None:
    if isinstance(given, _SETS):
        return path if isinstance(read, list) else None
    arrived = dict(_named(read))
    pairs = ((name, part, arrived[name]) for name, part in _named(given) if name in arrived)
    return next((found for name, part, other in pairs if (found := _untyped(part, other, _join(path, name)))), None)


def _has_sets(value: object) -> bool:
    return isinstance(value, _SETS) or any(type(part) not in _SCALARS and _has_sets(part) for _, part in _named(value))


def _members(value: object) -> Iterable[object]:
    """Return the parts of a collection, a dataclass or a model."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, _SEQUENCES):
        return value
    if hasattr(type(value), _SERIALIZER) or hasattr(type(value), "__dataclass_fields__"):
        return getattr(value, "__dict__", {}).values()
    return ()


def _named(value: object) -> Iterable[tuple[object, object]]:
    """Return these parts, each with its name or position."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, _SEQUENCES):
        return enumerate(value)
    if hasattr(type(value), _SERIALIZER) or hasattr(type(value), "__dataclass_fields__"):
        return getattr(value, "__dict__", {}).items()
    return ()


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)
