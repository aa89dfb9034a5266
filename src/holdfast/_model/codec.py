"""How payloads and results travel as JSON: the codec that writes the text, and the conversion by declared types."""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, Never, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from holdfast._logs.failure import Failure
from holdfast._model.continuation import Continue
from holdfast._model.errors import HoldfastError, InvalidJob, PayloadTooLarge
from holdfast._model.job import Signal
from holdfast._model.not_json import (
    find_lost,
    find_non_finite,
    find_unserializable,
    find_untyped_set,
    keep_non_finite,
)

if TYPE_CHECKING:
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
        raise InvalidJob(f"{kind}: an argument cannot be stored as JSON: {_unfit(exc)}") from exc
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
        if _HIDDEN in text and _has_secrets(adapter):
            raise InvalidJob(
                f"{name}: a SecretStr or SecretBytes is stored as asterisks: declare it as str or bytes, "
                "and let a codec encrypt it"
            )


def _has_secrets(adapter: TypeAdapter[Any]) -> bool:
    return '"writeOnly": true' in json.dumps(adapter.json_schema(mode="serialization"), default=str)


def invalid(kind: str, exc: Exception) -> HoldfastError:
    text = Failure.of(exc).text
    return InvalidJob(text if text.startswith(kind) else f"{kind}: {text}")


# JSON types, which need no conversion.
_PLAIN = frozenset({Any, object, NoneType, str, int, float, bool})
_SIGNALS = frozenset(get_args(Signal))
_NUMBERS = ConfigDict(ser_json_inf_nan="constants")
_CONFIG = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")


class Result:
    """The result type of a kind, checked at registration if every name in it exists by then."""

    def __init__(self, kind: str, handler: Callable[..., Any], one: Callable[[Any], Any]) -> None:
        """Create the result type of a handler; `one(hint)` returns the part of the type that belongs to one job."""
        self._kind = kind
        self._handler = handler
        self._one = one
        self._adapter: TypeAdapter[Any] | None = None
        self._dumps: TypeAdapter[Any] | None = None
        self._as_is = False
        """True if no type is declared, or only JSON types."""

    def check(self) -> None:
        """Raise InvalidJob for a type whose values cannot be stored and read again."""
        if self._known() and not self._as_is:
            self._check(self._made())

    def plain(self, value: object) -> object:
        """Return the result as the codec takes it; raises InvalidJob when a part is not JSON-serializable."""
        if self._dumps is None and not self._as_is:
            # A name that still does not exist is imported for type checkers only.
            self._dumps = self._made() if self._known() else TypeAdapter(Any, config=_NUMBERS)
        if self._as_is or self._dumps is None:
            return value
        try:
            # A value of another type is stored as it is: the work is done, and reading it raises.
            data = self._dumps.dump_python(value, mode="json", by_alias=True, warnings=False)
            lost = find_lost(self._dumps, value, data)
        except PydanticSerializationError:  # its text repeats the value
            raise InvalidJob(f"{self._kind}: the result has a value that is not JSON-serializable") from None
        if lost is not None:
            raise InvalidJob(f"{self._kind}: {lost}")
        return data

    def read(self, text: str) -> Any:
        """Return the result from JSON text; raises InvalidJob when it is not of the declared type."""
        return from_json(self._kind, self._made(), text)

    def _known(self) -> bool:
        """Resolve the type; return False while a name in it does not exist."""
        try:
            hint = self._hint()
        except (InvalidJob, AttributeError):
            return False
        self._as_is = all(_is_plain(member) for member in _members(hint))
        return True

    def _made(self) -> TypeAdapter[Any]:
        if self._adapter is None:
            self._adapter = _adapter(self._kind, self._hint())
        return self._adapter

    def _hint(self) -> Any:
        annotation = inspect.signature(self._handler).return_annotation
        if annotation is inspect.Signature.empty:
            return Any
        return _result(self._one(hints_of(self._kind, self._handler, {"return": annotation})["return"]))

    def _check(self, adapter: TypeAdapter[Any]) -> None:
        try:
            with warnings.catch_warnings(action="ignore"):
                secrets = _has_secrets(adapter)
        except PydanticUserError as exc:
            raise _cannot_travel(self._kind, _unfit(exc)) from None
        if secrets:
            raise _cannot_travel(self._kind, "a SecretStr or SecretBytes is stored as asterisks")


def _adapter(kind: str, hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint, config=_CONFIG)
    except PydanticUserError as exc:
        if exc.code != "type-adapter-config-unused":
            raise _cannot_travel(kind, _unfit(exc)) from None
    try:
        adapter = TypeAdapter(hint)
        keep_non_finite(adapter)
    except PydanticUserError as exc:
        raise _cannot_travel(kind, _unfit(exc)) from None
    return adapter


def _unfit(exc: Exception) -> str:
    """Return which type pydantic does not know, and what to use instead; for other problems, its own text."""
    text = Failure.of(exc).text
    if (found := _UNKNOWN_TYPE.match(text)) is None:
        return text
    return (
        f"{found[1]} is not a type that pydantic knows: use plain types, a dataclass, a TypedDict or a pydantic model"
    )


def _cannot_travel(kind: str, why: str) -> InvalidJob:
    return InvalidJob(f"{kind}: what the handler returns cannot be stored and read again: {why}")


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)


def _result(hint: Any) -> Any:
    """Return the result type of a handler: its return type without signals, with `R` for `Continue[R]`."""
    if get_origin(hint) is Coroutine:
        hint = get_args(hint)[2]
    elif get_origin(hint) is Awaitable:
        (hint,) = get_args(hint)
    kept = [member for member in _members(hint) if member not in _SIGNALS]
    results = [(get_args(member) or [Any])[0] if _is_continue(member) else member for member in kept]
    real = [NoneType if result in {NoReturn, Never, None} else result for result in results]
    return Union[tuple(real)] if real else NoneType  # noqa: UP007 - built at run time


def _is_plain(member: Any) -> bool:
    return member is Any or (isinstance(member, type) and member in _PLAIN)


def _is_continue(member: Any) -> bool:
    return member is Continue or get_origin(member) is Continue
