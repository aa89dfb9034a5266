"""The result of a handler: its declared type, and its way to JSON text and back."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from types import NoneType, UnionType
from typing import Any, Never, NoReturn, Union, get_args, get_origin

from pydantic import ConfigDict, PydanticUserError, TypeAdapter
from pydantic_core import PydanticSerializationError

from holdfast._model.codec import from_json, has_secrets, hints_of, unfit
from holdfast._model.continuation import Continue
from holdfast._model.errors import InvalidJob
from holdfast._model.not_json import find_lost, keep_non_finite
from holdfast._model.outcome import Signal

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
                secrets = has_secrets(adapter)
        except PydanticUserError as exc:
            raise _cannot_travel(self._kind, unfit(exc)) from None
        if secrets:
            raise _cannot_travel(self._kind, "a SecretStr or SecretBytes is stored as asterisks")


def _adapter(kind: str, hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint, config=_CONFIG)
    except PydanticUserError as exc:
        if exc.code != "type-adapter-config-unused":
            raise _cannot_travel(kind, unfit(exc)) from None
    try:
        adapter = TypeAdapter(hint)
        keep_non_finite(adapter)
    except PydanticUserError as exc:
        raise _cannot_travel(kind, unfit(exc)) from None
    return adapter


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
