"""Redaction of payloads before they are shown."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from holdfast._logs.masking import NAMES, is_secret, mask, plain_name
from holdfast._model.codec import WRAPPED, parse_json
from holdfast._model.errors import InvalidJob

if TYPE_CHECKING:
    from collections.abc import Callable

    Redactor: TypeAlias = Callable[[str, Any], Any]

HIDDEN = "[redacted]"
_DEEPEST = 50
_SEPARATORS = ((",", ":"), (", ", ": "))


class Shown(NamedTuple):
    value: Any
    redacted: bool


@dataclass(frozen=True, slots=True)
class Redaction:
    """Hides fields by name at any depth, then lets a function of the application hide more.

    The rule is that of `holdfast._logs.masking`: case and separators of a name do not matter, names that end in
    `password`, `secret`, `token` and similar are hidden too, and so are secrets within texts.
    `function(kind, value)` returns the value to show. If it fails, everything is hidden. Values wrapped by the codec
    are unwrapped first.

    >>> Redaction().apply("mail.send", {"to": "a@b.c", "with": {"X-Api-Key": "x", "url": "https://me:hush@b.c/"}})
    Shown(value={'to': 'a@b.c', 'with': {'X-Api-Key': '[redacted]', 'url': 'https://me:***@b.c/'}}, redacted=True)
    """

    fields: frozenset[str] = NAMES
    function: Redactor | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", frozenset(map(plain_name, self.fields)))

    def apply(self, kind: str, value: Any) -> Shown:
        look = _Walk(self.fields)
        kept = look.kept(value, 0)
        if self.function is None or value is None:
            return Shown(kept, look.hid)
        before = json.dumps(kept)
        try:
            kept = self.function(kind, kept)
            after = json.dumps(kept)
        except Exception:  # noqa: BLE001 - on any error the value stays hidden
            return Shown(HIDDEN, redacted=True)
        return Shown(kept, redacted=look.hid or after != before)

    def shows(self, kind: str, payload: str, text: str) -> bool:
        """Return whether the redacted payload contains the text, ignoring case."""
        try:
            shown = self.apply(kind, parse_json(payload)).value
        except InvalidJob:
            return False
        wanted = text.lower()
        return any(wanted in json.dumps(shown, ensure_ascii=False, separators=by).lower() for by in _SEPARATORS)


class _Walk:
    def __init__(self, fields: frozenset[str]) -> None:
        self._fields = fields
        self.hid = False

    def kept(self, value: Any, depth: int) -> Any:
        """Return the value to show, without lone surrogates and with wrapped JSON unwrapped."""
        if depth > _DEEPEST:
            return self._hidden()
        if isinstance(value, str):
            return self._masked(value if value.isascii() else value.encode("utf-8", "replace").decode())
        if isinstance(value, list):
            return [self.kept(inner, depth + 1) for inner in value]
        if not isinstance(value, dict):
            return value
        if value.keys() == {WRAPPED} and isinstance(text := value[WRAPPED], str):
            return self._unwrapped(text, depth)
        return {
            self.kept(name, depth): self._hidden() if is_secret(name, self._fields) else self.kept(inner, depth + 1)
            for name, inner in value.items()
        }

    def _unwrapped(self, text: str, depth: int) -> Any:
        try:
            return self.kept(parse_json(text), depth + 1)
        except InvalidJob:
            return self._hidden()

    def _hidden(self) -> str:
        self.hid = True
        return HIDDEN

    def _masked(self, text: str) -> str:
        masked = mask(text)
        self.hid = self.hid or masked != text
        return masked
