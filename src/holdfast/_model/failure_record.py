"""Failures of steps as JSON, and as exceptions again: an error that a handler caught is raised again in its place."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from holdfast._logs.failure import Failure, only_leaf
from holdfast._logs.masking import mask
from holdfast._model.errors import StepFailed

if TYPE_CHECKING:
    from holdfast._model.retry import Retry

_LONGEST = 2_000


def recorded(exc: BaseException, retry: Retry) -> dict[str, Any]:
    """Return an exception as JSON data: its class, its failure, and its plain values. Secrets in texts are masked."""
    exc, failure, retryable = only_leaf(exc), Failure.of(exc), retry.retries(exc)
    cls = type(exc)
    fields: dict[str, Any] = {
        "type": f"{cls.__module__}:{cls.__qualname__}",
        "code": failure.code,
        "text": failure.text,
        "retryable": retryable,
    }
    args = [_plain(arg) for arg in exc.args]
    if all(plain for plain, _ in args):
        fields["args"] = [value for _, value in args]
    own = {name: _plain(value) for name, value in vars(exc).items() if name != "__notes__"}
    fields["fields"] = {name: value for name, (plain, value) in own.items() if plain}
    return fields


def raised_again(fields: dict[str, Any]) -> Exception:
    """Return the exception that was recorded: of its own class, if the process has that, else StepFailed.

    Its constructor is not called. Nothing is imported: a class that a handler can catch has been imported.
    """
    failed = StepFailed(f"{fields['code']}: {fields['text']}", fields["code"], retryable=fields["retryable"])
    module, _, name = fields["type"].partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not issubclass(found, Exception):
        return failed
    try:
        exc = found.__new__(found)
        exc.args = tuple(fields.get("args", [fields["text"]]))
        vars(exc).update(fields["fields"])
        str(exc)
    except Exception:  # noqa: BLE001 - a class of the application may need more than it stores
        return failed
    return exc


def _plain(value: object) -> tuple[bool, object]:
    """Return whether JSON holds the value exactly, and the value with secrets masked."""
    if isinstance(value, str):
        return True, mask(value)[:_LONGEST]
    return value is None or type(value) in {bool, int} or (type(value) is float and math.isfinite(value)), value
