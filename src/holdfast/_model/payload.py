"""Converts payloads to and from JSON by the types that a handler or a model declares."""

from __future__ import annotations

import inspect
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from holdfast._logs.failure import Failure
from holdfast._model.codec import parse_json
from holdfast._model.errors import HoldfastError, InvalidJob

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

A = TypeVar("A")

_HIDDEN = '"**********"'


def hints_of(kind: str, handler: Callable[..., Any], annotated: Mapping[str, Any]) -> dict[str, Any]:
    module = getattr(inspect.unwrap(handler), "__globals__", {})
    try:
        return get_type_hints(SimpleNamespace(__annotations__=annotated), module, include_extras=True)
    except NameError as exc:
        raise InvalidJob(f"{kind}: an annotation names {exc.name}, which its module does not have at run time") from exc


def adapter_of(kind: str, model: type[A]) -> TypeAdapter[A]:
    try:
        return TypeAdapter(model)
    except Exception as exc:
        raise InvalidJob(f"{kind}: an argument of a type that cannot be validated: {Failure.of(exc).text}") from exc


def from_json(adapter: TypeAdapter[A], text: str) -> A:
    try:
        # Faster than the adapter's own validate_json, which handles a dozen options first.
        return cast("A", adapter.validator.validate_json(text))
    except ValidationError as exc:
        # An unpaired surrogate is valid in a Python string, but pydantic's JSON parser rejects it.
        if any(error["type"] == "json_invalid" for error in exc.errors(include_input=False, include_context=False)):
            return adapter.validate_python(parse_json(text))
        raise


def dump_typed(adapter: TypeAdapter[A], value: A) -> object:
    """Return the value as JSON-serializable data; raises ValueError when a part of it is not of its declared type."""
    try:
        return adapter.dump_python(adapter.validate_python(value), mode="json", by_alias=True, warnings="error")
    except PydanticSerializationError:  # its text repeats the value
        raise ValueError("it has a value that is not of the type it is declared with") from None


def check_secrets(name: str, adapter: TypeAdapter[Any], text: str) -> None:
    """Raise InvalidJob for a payload in which pydantic replaced secrets by asterisks."""
    if _HIDDEN in text and _has_secrets(adapter):
        raise InvalidJob(
            f"{name}: a SecretStr or SecretBytes is stored as asterisks: declare it as str or bytes, "
            "and let a codec encrypt it"
        )


def _has_secrets(adapter: TypeAdapter[Any]) -> bool:
    try:
        return '"writeOnly": true' in json.dumps(adapter.json_schema(mode="serialization"), default=str)
    except PydanticUserError:
        return False


def to_json(kind: str, value: object) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise InvalidJob(
            f"{kind}: an upgrade returned a value that is not JSON-serializable ({type(exc).__name__})"
        ) from exc


def invalid(kind: str, exc: Exception) -> HoldfastError:
    text = Failure.of(exc).text
    return InvalidJob(text if text.startswith(kind) else f"{kind}: {text}")
