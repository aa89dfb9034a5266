"""Numbers that JSON does not have: NaN and the infinities. They are refused, and never stored as null."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import SchemaSerializer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic import TypeAdapter

SCALARS = frozenset({str, int, float, bool, type(None)})
_SEQUENCES = (list, tuple, set, frozenset)
_CONTAINERS = frozenset({dict, list})
# The attribute of pydantic's models and dataclasses.
SERIALIZER = "__pydantic_serializer__"
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
    return next((found for name, part in _parts(data) if (found := find_non_finite(part, join_path(path, name)))), None)


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


def _lost(kept: object, data: object, path: str) -> NonFinite | None:
    if data is None:
        return NonFinite(path, kept) if isinstance(kept, float) and not math.isfinite(kept) else None
    if type(data) not in _CONTAINERS:
        return None
    for inner, (name, part) in zip(_members(kept), _parts(data), strict=False):
        # A path is written only where it may be needed.
        if (part is None or type(part) in _CONTAINERS) and (found := _lost(inner, part, join_path(path, name))):
            return found
    return None


def _has_models(values: Iterable[object]) -> bool:
    for value in values:
        type_ = type(value)
        if type_ not in SCALARS and (hasattr(type_, SERIALIZER) or _has_models(_members(value))):
            return True
    return False


def _has_none(data: object) -> bool:
    if data is None:
        return True
    for part in _members(data) if type(data) in _CONTAINERS else ():
        if part is None or (type(part) in _CONTAINERS and _has_none(part)):
            return True
    return False


def _members(value: object) -> Iterable[object]:
    """Return the parts of a collection, a dataclass or a model."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, _SEQUENCES):
        return value
    if hasattr(type(value), SERIALIZER) or hasattr(type(value), "__dataclass_fields__"):
        return getattr(value, "__dict__", {}).values()
    return ()


def _parts(data: object) -> Iterator[tuple[object, object]]:
    if isinstance(data, dict):
        yield from data.items()
    elif isinstance(data, list | tuple):
        yield from enumerate(data)


def join_path(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)
