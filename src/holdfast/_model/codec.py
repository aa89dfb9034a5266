"""Encodes payloads as JSON text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NoReturn

from holdfast._model.errors import InvalidJob, PayloadTooLarge

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
            raise InvalidJob(f"{kind or 'payload'}: JSON cannot say this ({type(exc).__name__})") from exc
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


def _is_utf8(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
