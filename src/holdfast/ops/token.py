"""Access tokens: `hf_<key>_<secret>`. The key finds the row, which holds a digest of the secret."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import NamedTuple

PREFIX = "hf_"

_SHAPE = re.compile(r"hf_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class Token(NamedTuple):
    key: str
    """12 hexadecimal digits, no secret."""
    secret: str
    """32 random bytes as 43 characters."""

    @classmethod
    def new(cls) -> Token:
        return cls(secrets.token_hex(6), secrets.token_urlsafe(32))

    @classmethod
    def read(cls, text: str) -> Token | None:
        """Return the parts of a token; None when it does not look like one."""
        found = _SHAPE.fullmatch(text)
        return None if found is None else cls(found[1], found[2])

    @property
    def text(self) -> str:
        """The whole token, as it is shown once to whom it is for."""
        return f"{PREFIX}{self.key}_{self.secret}"

    @property
    def digest(self) -> str:
        """What is stored. The secret is random and long, so a plain hash keeps it."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Token({self.key})"
