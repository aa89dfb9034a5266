"""What a person is not shown of a payload."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    Redactor: TypeAlias = Callable[[str, Any], Any]

HIDDEN = "[redacted]"
FIELDS = frozenset(
    {"password", "passwd", "secret", "token", "api_key", "authorization", "cookie", "set_cookie", "credit_card",
     "card_number", "cvv", "cvc", "iban", "ssn", "private_key", "session_id"}
)  # fmt: skip
_ENDINGS = ("password", "passwd", "secret", "token", "apikey", "privatekey")
_SEPARATORS = re.compile(r"[\s._-]+")
_DEEPEST = 50


class Shown(NamedTuple):
    value: Any
    redacted: bool


@dataclass(frozen=True, slots=True)
class Redaction:
    """Hides fields by their names at any depth, then lets a function of the application hide more.

    Case and separators of a name do not count, and names that end in `password`, `secret`, `token` and the like are
    hidden too. `function(kind, value)` returns what may be shown. When it fails, nothing is.

    >>> Redaction().apply("mail.send", {"to": "a@b.c", "auth": {"X-Api-Key": "x", "refreshToken": "y"}})
    Shown(value={'to': 'a@b.c', 'auth': {'X-Api-Key': '[redacted]', 'refreshToken': '[redacted]'}}, redacted=True)
    """

    fields: frozenset[str] = FIELDS
    function: Redactor | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", frozenset(map(plain_name, self.fields)))

    def apply(self, kind: str, value: Any) -> Shown:
        kept = self._kept(value, 0)
        if self.function is not None and value is not None:
            try:
                kept = self.function(kind, kept)
                json.dumps(kept)
            except Exception:  # noqa: BLE001 - whatever it raises, what it was to hide stays hidden
                kept = HIDDEN
        return Shown(kept, redacted=kept != value)

    def _kept(self, value: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            return HIDDEN
        if isinstance(value, dict):
            return {
                name: HIDDEN if self._hides(plain_name(name)) else self._kept(inner, depth + 1)
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [self._kept(inner, depth + 1) for inner in value]
        return value

    def _hides(self, name: str) -> bool:
        return name in self.fields or name.endswith(_ENDINGS)


def plain_name(name: str) -> str:
    return _SEPARATORS.sub("", name).lower()
