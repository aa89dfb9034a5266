"""A signed-in browser: a cookie that names who, until when, signed and not stored."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from holdfast.ops.person import Person
from holdfast.ops.role import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

COOKIE = "holdfast_session"
SECONDS = 12 * 3600.0
LEAST_SECRET = 32
_LONGEST = 2_048
_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Session:
    """By the key of a token, which is looked up at each use; or a person whom a JWT named."""

    id: str
    """Not a secret. By it a session is ended before its time."""
    key: str | None
    person: Person | None
    until: float
    """Seconds since 1970, by the clock of this machine: it has signed it."""


class Sessions:
    """Signs and reads them.

    Without a `secret` each process makes its own: whoever signed in must do so again when it starts anew, and several
    processes behind one address need one secret for all.
    """

    def __init__(
        self, secret: str | None = None, *, seconds: float = SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        if secret is not None and len(secret) < LEAST_SECRET:
            raise ValueError(f"the secret that signs sessions must have at least {LEAST_SECRET} characters")
        self._key = hashlib.sha256(b"holdfast session " + (secret or secrets.token_hex(32)).encode()).digest()
        self._seconds = seconds
        self._clock = clock

    def of_token(self, key: str) -> str:
        return self._signed({"key": key, "until": self._clock() + self._seconds})

    def of_person(self, person: Person, until: float) -> str:
        """Sign in whom a JWT named, for no longer than that holds."""
        ends = min(until, self._clock() + self._seconds)
        return self._signed({"name": person.name, "role": person.role, "until": ends})

    def read(self, value: str) -> Session | None:
        """Return the session; None when it is not ours, or over."""
        if len(value) > _LONGEST or _SHAPE.fullmatch(value) is None:
            return None
        said, _, mac = value.partition(".")
        if not hmac.compare_digest(self._mac(said), mac):
            return None
        try:
            fields = json.loads(_bytes(said))
        except (ValueError, binascii.Error):
            return None
        if "id" not in fields or fields["until"] <= self._clock():
            return None
        person = Person(fields["name"], Role(fields["role"])) if "name" in fields else None
        return Session(fields["id"], fields.get("key"), person, fields["until"])

    def write(self, request: Request, response: Response, value: str) -> None:
        """Let the browser keep it for this application alone."""
        response.set_cookie(COOKIE, value, max_age=int(self._seconds), **_where(request))

    def forget(self, request: Request, response: Response) -> None:
        response.delete_cookie(COOKIE, **_where(request))

    def _signed(self, fields: dict[str, Any]) -> str:
        said = _text(json.dumps({"id": secrets.token_hex(8), **fields}, separators=(",", ":")).encode())
        return f"{said}.{self._mac(said)}"

    def _mac(self, said: str) -> str:
        return _text(hmac.digest(self._key, said.encode(), "sha256"))


def _where(request: Request) -> dict[str, Any]:
    return {
        "path": quote(request.scope.get("root_path", "")) or "/",
        "secure": request.url.scheme == "https",
        "httponly": True,
        "samesite": "strict",
    }


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
