"""Browser sessions, kept only in a signed cookie, and access tokens."""

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
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from holdfast._ops.person import Person, Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response


COOKIE = "holdfast_session"
SECONDS = 12 * 3600.0
LEAST_SECRET = 32
_LONGEST = 2_048
_COOKIE_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A session: either a token's key, looked up at each use, or the person of a JWT."""

    id: str
    """Not secret. Used to end the session early."""
    key: str | None
    person: Person | None
    until: float
    """Unix time in seconds, by the clock of the machine that signed it."""


class Sessions:
    """Signs and verifies session cookies.

    Without a `secret` each process generates its own: a restart ends all sessions, and several processes behind one
    address need a common secret.
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
        """Return a session for the person of a JWT, valid no longer than the JWT."""
        ends = min(until, self._clock() + self._seconds)
        return self._signed({"name": person.name, "role": person.role, "until": ends})

    def read(self, value: str) -> BrowserSession | None:
        """Return the session, or None if it is expired or not signed by us."""
        if len(value) > _LONGEST or _COOKIE_SHAPE.fullmatch(value) is None:
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
        return BrowserSession(fields["id"], fields.get("key"), person, fields["until"])

    def write(self, request: Request, response: Response, value: str) -> None:
        """Set the cookie, restricted to this application's path."""
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


PREFIX = "hf_"

_TOKEN_SHAPE = re.compile(r"hf_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class Token(NamedTuple):
    key: str
    """12 hexadecimal digits, not secret."""
    secret: str
    """32 random bytes as 43 characters."""

    @classmethod
    def new(cls) -> Token:
        return cls(secrets.token_hex(6), secrets.token_urlsafe(32))

    @classmethod
    def read(cls, text: str) -> Token | None:
        """Return the parts of a token, or None if the text is not one."""
        found = _TOKEN_SHAPE.fullmatch(text)
        return None if found is None else cls(found[1], found[2])

    @property
    def text(self) -> str:
        """The whole token, shown once to its owner."""
        return f"{PREFIX}{self.key}_{self.secret}"

    @property
    def digest(self) -> str:
        """The stored hash. The secret is long and random, so a plain SHA-256 is enough."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Token({self.key})"
