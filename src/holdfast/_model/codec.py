"""How payloads and results travel as JSON: the codec that writes the text, and the conversion by declared types."""

from __future__ import annotations

import inspect
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from holdfast._logs.failure import Failure
from holdfast._model.errors import HoldfastError, InvalidJob, PayloadTooLarge
from holdfast._model.not_json import (
    find_lost,
    find_non_finite,
    find_unserializable,
    find_untyped_set,
    keep_non_finite,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast._model.not_json import NonFinite

A = TypeVar("A")

WRAPPED = "$json"
_WRAPPED_START = '{"$json":'

_READABLE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_ASCII = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class JsonCodec:
    """Encodes JSON-serializable values as text and decodes them unchanged.

    PostgreSQL cannot read JSON that contains a NUL character or an unpaired surrogate: one such string makes `->>` fail
    on every key. A payload that contains them is stored as text inside an object, `{"$json": "…"}`.

    >>> JsonCodec().encode({"invoice_id": 7})
    '{"invoice_id":7}'
    """

    max_bytes: int = 262_144
    """Largest payload in bytes of UTF-8. Default: 256 KiB."""

    def encode(self, value: object, *, kind: str = "") -> str:
        """Return the value as JSON text. `kind`: the name to show in errors."""
        try:
            text = _READABLE.encode(value)
            if "\\u0000" in text or text.startswith(_WRAPPED_START) or not _is_utf8(text):
                text = _READABLE.encode({WRAPPED: _ASCII.encode(value)})
        except (TypeError, ValueError, RecursionError) as exc:
            if (found := _non_finite(exc, value)) is not None:
                raise InvalidJob(f"{kind or 'payload'}: {found}") from None
            why = str(exc) if isinstance(exc, TypeError) else type(exc).__name__
            raise InvalidJob(
                f"{kind or 'payload'}: a value is not JSON-serializable ({why}): give text, numbers, lists and dicts, "
                "or annotate its type"
            ) from exc
        size = len(text) if text.isascii() else len(text.encode())
        if size > self.max_bytes:
            raise PayloadTooLarge(kind=kind, size=size, limit=self.max_bytes)
        return text

    def decode(self, text: str) -> object:
        """Return the value of a stored JSON text."""
        return parse_json(self.plain(text))

    def plain(self, text: str) -> str:
        """Return the JSON text without the `{"$json": …}` wrapper, if it has one."""
        if not text.startswith(_WRAPPED_START):
            return text
        value = parse_json(text)
        inner = value[WRAPPED] if isinstance(value, dict) and value.keys() == {WRAPPED} else None
        return inner if isinstance(inner, str) else text


def parse_json(text: str) -> object:
    try:
        value: object = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as exc:
        raise InvalidJob(f"the payload is not JSON ({type(exc).__name__})") from None
    return value


def _non_finite(exc: Exception, value: object) -> NonFinite | None:
    # A value that contains itself raises ValueError too.
    with suppress(RecursionError):
        return find_non_finite(value) if isinstance(exc, ValueError) else None
    return None


def _is_utf8(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_UNKNOWN_TYPE = re.compile(r"Unable to generate pydantic-core schema for (?:<class ')?(.+?)(?:'>)?\. Set ")
_HIDDEN = '"**********"'


def hints_of(kind: str, handler: Callable[..., Any], annotated: Mapping[str, Any]) -> dict[str, Any]:
    module = getattr(inspect.unwrap(handler), "__globals__", {})
    try:
        return get_type_hints(SimpleNamespace(__annotations__=annotated), module, include_extras=True)
    except NameError as exc:
        raise InvalidJob(
            f"{kind}: an annotation names {exc.name}, which its module does not have at run time: "
            "import it, and not only for type checkers"
        ) from exc


def adapter_of(kind: str, model: type[A]) -> TypeAdapter[A]:
    try:
        adapter = TypeAdapter(model)
        keep_non_finite(adapter)
    except Exception as exc:
        raise InvalidJob(f"{kind}: an argument cannot be stored as JSON: {unfit(exc)}") from exc
    return adapter


def from_json(kind: str, adapter: TypeAdapter[A], text: str) -> A:
    """Return the value from JSON text; raises InvalidJob when it is not of the declared type."""
    try:
        # Faster than the adapter's own validate_json, which handles a dozen options first.
        return cast("A", adapter.validator.validate_json(text))
    except ValidationError as exc:
        # An unpaired surrogate is valid in a Python string, but pydantic's JSON parser rejects it.
        if all(error["type"] != "json_invalid" for error in exc.errors(include_input=False, include_context=False)):
            raise invalid(kind, exc) from None
    try:
        return adapter.validate_python(parse_json(text))
    except ValidationError as exc:
        raise invalid(kind, exc) from None


def as_json_data(kind: str, adapter: TypeAdapter[A], value: A, *, strict: bool) -> object:
    """Return the value as JSON-serializable data; raises InvalidJob when it is not valid.

    `strict`: also when a part of it is not of its declared type. Pydantic does not validate the fields of an instance.
    """
    valid: Any = None
    try:
        valid = adapter.validate_python(value)
        data = adapter.dump_python(valid, mode="json", by_alias=True, warnings="error" if strict else False)
        unfit = find_lost(adapter, valid, data) or find_untyped_set(adapter, valid, data)
    except ValueError as exc:
        if (found := find_unserializable(valid)) is not None:
            raise InvalidJob(f"{kind}: {found}") from None
        if strict and isinstance(exc, PydanticSerializationError):  # its text repeats the value
            raise InvalidJob(f"{kind}: it has a value that is not of the type it is declared with") from None
        raise invalid(kind, exc) from None
    if unfit is not None:
        raise InvalidJob(f"{kind}: {unfit}")
    return data


def check_secrets(name: str, adapter: TypeAdapter[Any], text: str) -> None:
    """Raise InvalidJob for a payload in which pydantic replaced secrets by asterisks."""
    # A type without a JSON schema cannot be checked.
    with suppress(PydanticUserError):
        if _HIDDEN in text and has_secrets(adapter):
            raise InvalidJob(
                f"{name}: a SecretStr or SecretBytes is stored as asterisks: declare it as str or bytes, "
                "and let a codec encrypt it"
            )


def has_secrets(adapter: TypeAdapter[Any]) -> bool:
    return '"writeOnly": true' in json.dumps(adapter.json_schema(mode="serialization"), default=str)


def invalid(kind: str, exc: Exception) -> HoldfastError:
    text = Failure.of(exc).text
    return InvalidJob(text if text.startswith(kind) else f"{kind}: {text}")


def unfit(exc: Exception) -> str:
    """Return which type pydantic does not know, and what to use instead; for other problems, its own text."""
    text = Failure.of(exc).text
    if (found := _UNKNOWN_TYPE.match(text)) is None:
        return text
    return (
        f"{found[1]} is not a type that pydantic knows: use plain types, a dataclass, a TypedDict or a pydantic model"
    )
