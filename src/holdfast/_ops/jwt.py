"""Authentication by a JSON Web Token of a trusted issuer."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import jwt
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from holdfast._engine.keeper import in_thread
from holdfast._logs.failure import Failure
from holdfast._logs.log import Log
from holdfast._ops.caller import Person, RequestRefused, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


LONGEST = 4_096
LEEWAY = 5.0
_NAME_LIMIT = 200
_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_REQUIRED = ["exp", "iss", "aud"]


class JwtAccess:
    """Trusts tokens that `issuer` signed for `audience` with a key of its key set.

    The keys are fetched from `jwks_url` or given as `keys`. Signatures are RSA, EC or Ed25519, whatever the token's
    header claims, and tokens must expire. `role_claim` holds `viewer`, `operator` or `developer`, or a list of which
    the highest counts. `roles` maps the issuer's own values of the claim to roles.
    """

    def __init__(  # noqa: PLR0913 - one keyword per choice
        self,
        *,
        issuer: str,
        audience: str,
        jwks_url: str | None = None,
        keys: Mapping[str, Any] | None = None,
        role_claim: str = "role",
        name_claim: str = "sub",
        roles: Mapping[str, Role] | None = None,
    ) -> None:
        if not issuer or not audience:
            raise ValueError("an issuer and an audience are needed")
        self._issuer = issuer
        self._audience = audience
        self._keys = KeySet(url=jwks_url, keys=keys)
        self._role_claim = role_claim
        self._name_claim = name_claim
        self._roles = {str(role): role for role in Role} if roles is None else dict(roles)

    def named(self, person: Person) -> Person:
        """Return the person with the prefix `jwt:`, so that the audit distinguishes it from a local token or login."""
        return replace(person, name=f"jwt:{person.name}", credential=f"jwt:{self._issuer}")

    async def verify(self, token: str) -> tuple[Person, float] | None:
        """Return the person of a valid token, and when it expires; None if it is invalid.

        Raise RequestRefused if it has no role.
        """
        claims = await self._claims(token)
        if claims is None:
            return None
        name = claims.get(self._name_claim)
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_LIMIT or not name.isprintable():
            return None
        role = self._role(claims.get(self._role_claim))
        if role is None:
            raise RequestRefused(403, "no_role", "This token has no role here.")
        return Person(name, role), float(claims["exp"])

    async def _claims(self, token: str) -> Mapping[str, Any] | None:
        if len(token) > LONGEST or not _SHAPE.fullmatch(token):
            return None
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if not isinstance(algorithm, str) or not isinstance(key_id, str | None):
                return None
            key = await self._keys.find(key_id, algorithm)
            if key is None:
                return None
            claims: dict[str, Any] = jwt.decode(
                token,
                key.made(algorithm).key,
                algorithms=[algorithm],
                issuer=self._issuer,
                audience=self._audience,
                leeway=LEEWAY,
                options={"require": _REQUIRED},
            )
            return claims if _is_time(claims["exp"]) else None
        except (jwt.PyJWTError, json.JSONDecodeError, OverflowError, RecursionError, TypeError, ValueError):
            return None

    def _role(self, claim: object) -> Role | None:
        words = claim if isinstance(claim, list) else [claim]
        found = [self._roles[word] for word in words if isinstance(word, str) and word in self._roles]
        return max(found, key=lambda role: sum(role.may(other) for other in Role), default=None)


def _is_time(claim: object) -> bool:
    return isinstance(claim, int | float) and math.isfinite(claim)


log = Log(__name__)

FRESH = 300.0
"""Seconds after which keys are fetched again."""
STALE = 3_600.0
"""Seconds for which old keys are used if that fails."""
AGAIN = 30.0
"""Seconds between two fetches caused by unknown keys."""
PATIENCE = 5.0
LARGEST = 262_144
MOST_KEYS = 100
LEAST_BITS = 2_048

_PUBLIC = ("kty", "crv", "n", "e", "x", "y")
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}


class Key(NamedTuple):
    """A public key and the algorithms allowed with it."""

    id: str | None
    algorithms: tuple[str, ...]
    material: Mapping[str, str]

    def made(self, algorithm: str) -> PyJWK:
        return PyJWK(dict(self.material), algorithm)


def read_keys(document: object) -> list[Key]:
    """Return the usable keys of a JSON Web Key Set: public, for signatures, asymmetric, long enough."""
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("a key set is an object with a list of keys")  # noqa: TRY004 - external data
    return [key for jwk in listed[:MOST_KEYS] if (key := _key(jwk)) is not None]


class KeySet:
    """Finds keys by id. Fetches only from https or this machine, and follows no redirects."""

    def __init__(
        self,
        *,
        url: str | None = None,
        keys: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if (url is None) == (keys is None):
            raise ValueError("give the address of a key set, or the keys, and not both")
        if url is not None:
            _check_address(url)
        self._url = url
        self._clock = clock
        self._keys: Sequence[Key] = [] if keys is None else read_keys(keys)
        self._fetched = -STALE
        self._tried = -STALE
        self._lock = asyncio.Lock()
        if keys is not None and not self._keys:
            raise ValueError("none of these keys can be used: RSA from 2048 bits, EC P-256 to P-521, Ed25519")

    async def find(self, key_id: str | None, algorithm: str) -> Key | None:
        """Return the key with this id. Without an id, return the only key that fits the algorithm."""
        if self._url is None:
            return self._found(key_id, algorithm)
        await self._freshen(FRESH)
        found = self._found(key_id, algorithm)
        if found is None:
            await self._freshen(AGAIN)
            found = self._found(key_id, algorithm)
        return found

    def _found(self, key_id: str | None, algorithm: str) -> Key | None:
        fits = [key for key in self._keys if algorithm in key.algorithms and key_id in (None, key.id)]
        return fits[0] if len(fits) == 1 else None

    async def _freshen(self, age: float) -> None:
        async with self._lock:
            now = self._clock()
            if now - self._fetched >= age and now - self._tried >= min(age, AGAIN):
                self._tried = now
                await self._fetch()
            if self._clock() - self._fetched >= STALE:
                raise RequestRefused(503, "keys_unavailable", "The issuer's keys cannot be fetched.")

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                keys: list[Key] = await in_thread(lambda: read_keys(_get(str(self._url))), name="holdfast-keys")
        except (OSError, ValueError) as exc:
            log.warning("the issuer's keys cannot be fetched", extra={"error": Failure.of(exc).code})
            return
        self._keys = keys
        self._fetched = self._clock()


class _Staying(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _get(url: str) -> Any:
    request = Request(url, headers={"Accept": "application/json"})  # noqa: S310 - the scheme was checked
    try:
        with build_opener(_Staying).open(request, timeout=PATIENCE) as answer:
            data = answer.read(LARGEST + 1)
    except HTTPError as exc:
        with exc:
            raise ValueError(f"answered with {exc.code}") from None
    if len(data) > LARGEST:
        raise ValueError("the key set is too large")
    return json.loads(data)


def _check_address(url: str) -> None:
    parts = urlsplit(url)
    local = parts.scheme == "http" and parts.hostname is not None and _is_local(parts.hostname)
    if not (local or (parts.scheme == "https" and parts.hostname)):
        raise ValueError("keys are fetched from an https address, or from this machine")


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _key(jwk: object) -> Key | None:
    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig":
        return None
    algorithms = _algorithms(jwk)
    if (named := jwk.get("alg")) is not None:
        algorithms = tuple(algorithm for algorithm in algorithms if algorithm == named)
    if not algorithms:
        return None
    key_id = jwk.get("kid")
    key = Key(
        key_id if isinstance(key_id, str) else None, algorithms, {name: jwk[name] for name in _PUBLIC if name in jwk}
    )
    try:
        made = key.made(algorithms[0]).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    return None if getattr(made, "key_size", LEAST_BITS) < LEAST_BITS and jwk.get("kty") == "RSA" else key


def _algorithms(jwk: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the algorithms for the key's type. Shared secrets and `none` are never allowed."""
    match jwk.get("kty"), jwk.get("crv"):
        case "RSA", _:
            return _RSA
        case "EC", str(curve):
            return _CURVES.get(curve, ())
        case "OKP", "Ed25519":
            return ("EdDSA",)
    return ()
