"""The masking of secrets: one rule for everything that is stored, logged, traced and shown.

Secrets are recognized by name (`api_key=…`, `"password": …`, `Authorization: …`), by their place in an address (user
info, webhook paths) or by their form (JWTs, private keys, tokens with a known prefix). `HOLDFAST_SECRET_NAMES` in the
environment adds names, separated by commas; child processes inherit it. The time is linear in the length of a text.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Any

MASK = "***"
VARIABLE = "HOLDFAST_SECRET_NAMES"
NAMES = frozenset(
    {"auth", "authorization", "bearer", "card_number", "connection_string", "cookie", "credential", "credentials",
     "credit_card", "cvc", "cvv", "dsn", "iban", "jwt", "passphrase", "passwd", "password", "private_key",
     "proxy_authorization", "pwd", "secret", "session_id", "set_cookie", "sig", "signature", "ssn", "token",
     "x_amz_signature"}
)  # fmt: skip
"""These names are masked regardless of case and separators."""

_ENDINGS = ("password", "passwd", "pwd", "passphrase", "secret", "secretkey", "token", "apikey", "accesskey",
            "privatekey", "credentials", "cookie", "jwt", "dsn", "authorization", "basicauth")  # fmt: skip
_PASSWORDS = ("password", "passwd", "pwd", "passphrase")
_DEEPEST = 50
_SEPARATORS = re.compile(r"[\s._-]+")
_QUOTED = r"""'(?:[^'\\]|\\.){0,2048}+(?:'|\Z)|"(?:[^"\\]|\\.){0,2048}+(?:"|\Z)"""
_SCHEMES = r"(?:Basic|Bearer|Digest|Token|ApiKey|Negotiate|AWS4-HMAC-SHA256)"
_NAME = re.compile(r"""(?<![\w.-])([\w.-]{1,64})(\\?["']?\]?\s{0,2}(?:=>|:=|={1,3}|:)\s{0,2})""")
_VALUE = re.compile(rf"{_QUOTED}|({_SCHEMES}\s{{1,2}})?[^\s,;&)\]}}]+", re.IGNORECASE | re.DOTALL)
_COOKIES = re.compile(r"(\bcookie: ?)(?:[^\s;,]{1,4096}+; ?){0,100}[^\s;,]+", re.IGNORECASE)
_OPTION = re.compile(rf"(?<!\S)(--(?P<name>[\w-]{{1,64}})\s)(?!-)({_QUOTED}|\S+)")
_SCHEME = re.compile(rf"\b({_SCHEMES}\s{{1,2}})([\w.~+/=-]{{8,}}+)", re.IGNORECASE)
_SHAPES = re.compile(
    r"""\b(?:eyJ[\w-]{8,2000}\.[\w-]{8,2000}\.[\w-]{8,2000} | hf_[0-9a-f]{12}_[\w-]{43} | whsec_[\w+/=]{10,200}
        | [sprk]k_(?:live|test)_\w{10,200}
        | gh[pousr]_\w{20,200} | xox[abprs]-[\w-]{10,200} | bot\d{5,15}:[\w-]{30,100})""",
    re.VERBOSE,
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.{0,8192}?(?:-----END [A-Z ]{0,40}-----|\Z)", re.DOTALL
)
_WORD = re.compile(r"\S+")
_HOOK = re.compile(r"((?:\A|[@/.])(?:hooks?|webhooks?\w{0,4})(?:\.[\w.:-]{1,200}|(?=/)))/[^\s?#\"'<>]+", re.IGNORECASE)
_AUTHORITY_END = re.compile(r"[/?#]")


def plain_name(name: str) -> str:
    return _SEPARATORS.sub("", name).lower()


def is_secret(name: str, names: frozenset[str] | None = None) -> bool:
    """Return whether values of this name are masked. `names`: replaces `NAMES`, normalized by `plain_name`."""
    plain = plain_name(name)
    return plain in (_PLAIN if names is None else names) or plain.endswith(_ENDINGS) or plain in _added()


def mask(text: str, limit: int | None = None) -> str:
    """Return the text with its secrets masked. `limit`: cut a longer text to this many characters. Default: no limit.

    >>> mask("GET https://me:hunter2@shop.example/x?api_key=abc&page=2 failed with Authorization: Bearer abc.def")
    'GET https://me:***@shop.example/x?api_key=***&page=2 failed with Authorization: Bearer ***'
    """
    if limit is not None and len(text) > limit:
        text = _cut(text, limit)
    if "PRIVATE KEY-----" in text:
        text = _PRIVATE_KEY.sub(MASK, text)
    if "://" in text:
        text = _WORD.sub(_masked_word, text)
    text = _COOKIES.sub(rf"\1{MASK}", text)
    text = _masked_by_name(text)
    text = _OPTION.sub(lambda found: found[1] + MASK if is_secret(found["name"]) else found[0], text)
    text = _SCHEME.sub(lambda found: found[0] if _is_prose(found[2]) else found[1] + MASK, text)
    return _SHAPES.sub(MASK, text)


def mask_value(value: Any, depth: int = 0) -> Any:
    """Return a JSON value with its secrets masked, by field name and inside texts."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict | list) and depth > _DEEPEST:
        return MASK
    if isinstance(value, list):
        return [mask_value(inner, depth + 1) for inner in value]
    if isinstance(value, dict):
        return {name: MASK if is_secret(name) else mask_value(inner, depth + 1) for name, inner in value.items()}
    return value


_PLAIN = frozenset(map(plain_name, NAMES))


@cache
def _added() -> frozenset[str]:
    return frozenset(filter(None, map(plain_name, os.environ.get(VARIABLE, "").split(","))))


def _cut(text: str, limit: int) -> str:
    """Cut a text so that every secret can still be recognized: an address that is cut is masked after its scheme."""
    kept = text[:limit]
    start = max(kept.rfind(" "), kept.rfind("\n")) + 1
    word, sign, _ = kept[start:].partition("://")
    return f"{kept[:start]}{word}{sign}{MASK}" if sign else kept


def _is_prose(value: str) -> bool:
    return value.isalpha() and value.islower()


def _masked_by_name(text: str) -> str:
    kept: list[str] = []
    done = at = 0
    while named := _NAME.search(text, at):
        at = named.end()
        if not is_secret(named[1]) or (value := _VALUE.match(text, at)) is None:
            continue
        if _is_shown(named[1], named[2], value[0]):
            continue
        kept += [text[done:at], value[1] or "", MASK]
        done = at = value.end()
    return "".join(kept) + text[done:]


def _is_shown(name: str, sign: str, value: str) -> bool:
    """Return whether a value is prose and not a secret: `token: expired`, or the port of a host, as in `auth:5432`."""
    if sign.strip() != ":" or plain_name(name).endswith(_PASSWORDS):
        return False
    return _is_prose(value) or (sign == ":" and value.isdigit())


def _masked_word(found: re.Match[str]) -> str:
    first, *rest = found[0].split("://")
    if not rest:
        return first
    kept = [first]
    for part in rest:
        kept.append(_masked_address(part, http=kept[-1].lower().endswith(("http", "https"))))
    return "://".join(kept)


def _masked_address(part: str, *, http: bool) -> str:
    """Mask the password, the user info of an http address without a password, and the part after `hooks`."""
    end = found.start() if (found := _AUTHORITY_END.search(part)) else len(part)
    info, at, host = part.rpartition("@")
    user, colon, _ = info.partition(":")
    if at and colon and len(user) <= end:
        part = f"{user}:{MASK}@{host}"
    elif at and http and len(info) < end:
        part = f"{MASK}@{host}"
    return _HOOK.sub(rf"\1/{MASK}", part)
