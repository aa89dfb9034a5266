"""Failures that can be stored and shown: normalized, bounded, and without secrets or data."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from holdfast._logs.masking import mask

if TYPE_CHECKING:
    from collections.abc import Iterator

CODE_LIMIT = 100
TEXT_LIMIT = 2_000
TRACEBACK_LIMIT = 8_000
# Masking can shorten a text, so more characters are read than are kept.
_WINDOW = 8_192
_READ = 65_536
_SHOWN_ERRORS = 5
_MOST_FRAMES = 30

_DROPPED = re.compile("[\x00\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_CONTROL = re.compile("[\x01-\x1f\x7f-\x9f]")
# From here on, a database error quotes data or statements.
_DATABASE_TAIL = re.compile(
    r"(?:\n(?:DETAIL|HINT|CONTEXT|QUERY|STATEMENT|LINE \d+):|\[SQL: |\[parameters: |\(Background on this error ).*",
    re.DOTALL,
)
_QUOTED_ARGUMENT = re.compile(r"(query argument \$\d+[^:]{0,100}):.*", re.DOTALL)
_ADAPTED = re.compile(r"^<class '[\w.]+'>: ")


@dataclass(frozen=True, slots=True)
class Failure:
    """A code to group failures by and a text to read.

    >>> Failure.of(ConnectionError("cannot reach postgres://app:hunter2@db/app"))
    Failure(code='ConnectionError', text='cannot reach postgres://app:***@db/app')
    """

    code: str
    """At most 100 characters."""
    text: str
    """At most 2,000 characters, one line."""

    def __post_init__(self) -> None:
        code = mask(_one_line(self.code))[:CODE_LIMIT] or "Error"
        object.__setattr__(self, "code", code)
        object.__setattr__(self, "text", _bounded(mask(_one_line(self.text), _WINDOW)) or code)

    @classmethod
    def of(cls, exc: BaseException) -> Failure:
        """Return an exception's failure; the code is its own `code` if that is a short string, else its class name."""
        try:
            return cls(_code(exc), _text(exc))
        except BaseException:  # noqa: BLE001 - a third-party error may raise even SystemExit when it is inspected
            return cls("Error", "an error that cannot be printed")


def only_leaf(exc: BaseException) -> BaseException:
    """Return the single exception inside nested exception groups; a group with several is returned as it is."""
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


def traceback_of(exc: BaseException) -> str | None:
    """Return the traceback of an error and of its causes; None when it was created but not raised.

    At most 8,000 characters. The error texts come from `Failure`, because Python's own may quote payloads.
    """
    try:
        parts: list[str] = []
        raised: BaseException | None = only_leaf(exc)
        if raised is None or raised.__traceback__ is None:
            return None
        while raised is not None and len(parts) < _SHOWN_ERRORS:
            frames = traceback.format_list(traceback.extract_tb(raised.__traceback__, limit=-_MOST_FRAMES))
            failure = Failure.of(raised)
            parts.insert(0, f"{''.join(frames)}{type(raised).__name__}: {failure.text}")
            raised = raised.__cause__ or (None if raised.__suppress_context__ else raised.__context__)
        text = "\n\nThen:\n\n".join(parts)
        text = "\n".join(mask(_CONTROL.sub(" ", _DROPPED.sub("", line))) for line in text.split("\n"))
        # Keep the end: it shows where the last error was raised.
        return text if len(text) <= TRACEBACK_LIMIT else f"…{text[1 - TRACEBACK_LIMIT :]}"
    except Exception:  # noqa: BLE001 - the attempt must end even if inspecting its error fails
        return None


def _code(exc: BaseException) -> str:
    code = attribute(exc, "code")
    # SQLAlchemy's codes are page names of its documentation.
    if isinstance(code, str) and 0 < len(code) <= CODE_LIMIT and not _is_from(exc, "sqlalchemy"):
        return code
    return type(exc).__name__


def _text(exc: BaseException) -> str:
    if isinstance(exc, BaseExceptionGroup):
        return _group_text(exc)
    if isinstance(exc, ValidationError):
        return _validation_text(exc)
    return _ADAPTED.sub("", _QUOTED_ARGUMENT.sub(r"\1", _DATABASE_TAIL.sub("", _message(exc)[:_READ])))


def _message(exc: BaseException) -> str:
    if _is_from(exc, "sqlalchemy") and isinstance(original := attribute(exc, "orig"), BaseException):
        return f"{type(original).__name__}: {_text(original)}"
    primary = attribute(attribute(exc, "diag"), "message_primary")
    if isinstance(primary, str) and primary:
        return primary
    try:
        return str(exc)
    except BaseException:  # noqa: BLE001 - the failure is stored even if the error's __str__ raises
        return f"<{type(exc).__name__} that cannot be printed>"


def _group_text(group: BaseExceptionGroup[Any]) -> str:
    errors = list(leaves(group))
    shown = [f"{type(error).__name__}: {_text(error)[:200]}" for error in errors[:_SHOWN_ERRORS]]
    if len(errors) > _SHOWN_ERRORS:
        shown.append("…")
    return f"{len(errors)} errors: {'; '.join(shown)}"


def leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    waiting: list[BaseException] = [group]
    while waiting:
        exc = waiting.pop(0)
        if isinstance(exc, BaseExceptionGroup):
            waiting[:0] = exc.exceptions
        else:
            yield exc


def _validation_text(exc: ValidationError) -> str:
    errors = exc.errors(include_url=False)
    shown = []
    for error in errors[:_SHOWN_ERRORS]:
        where = ".".join(
            str(part) if str(part).isidentifier() or isinstance(part, int) else "[…]" for part in error["loc"]
        )
        message = error["msg"]
        for value in (error.get("input"), *error.get("ctx", {}).values()):
            if error["type"] in {"value_error", "assertion_error", "union_tag_invalid"} and isinstance(
                value, str | int | float
            ):
                message = re.sub(rf"(?<!\w){re.escape(str(value))}(?!\w)", "…", message)
        shown.append(f"{where}: {message}" if where else message)
    if len(errors) > _SHOWN_ERRORS:
        shown.append("…")
    return f"{exc.title}: {'; '.join(shown)}"


def attribute(of: object, name: str) -> object:
    """Return an attribute of a third-party error; None if it has none, or reading it raises."""
    try:
        return getattr(of, name, None)
    except BaseException:  # noqa: BLE001 - a property of a third-party error may raise anything
        return None


def _is_from(exc: BaseException, package: str) -> bool:
    return any(cls.__module__.partition(".")[0] == package for cls in type(exc).__mro__)


def _one_line(text: str) -> str:
    text = _CONTROL.sub(" ", _DROPPED.sub("", text[:_READ]))
    return " ".join(text.encode("utf-8", "replace").decode().split())


def _bounded(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 1] + "…"
