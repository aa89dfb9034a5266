"""The public keys by which JWTs are verified: given, or fetched from the issuer and kept for a while."""

from __future__ import annotations

import asyncio
import json
import time
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from holdfast.engine.runner import in_thread
from holdfast.failure import Failure
from holdfast.logs import Log
from holdfast.ops.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

log = Log(__name__)

FRESH = 300.0
"""Seconds after which keys are fetched anew."""
STALE = 3_600.0
"""Seconds for which they are used when that fails."""
AGAIN = 30.0
"""Seconds between two fetches for keys that are not in the set."""
PATIENCE = 5.0
LARGEST = 262_144
MOST_KEYS = 100
LEAST_BITS = 2_048

_PUBLIC = ("kty", "crv", "n", "e", "x", "y")
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}


class Key(NamedTuple):
    """A public key, and the algorithms it may be used with."""

    id: str | None
    algorithms: tuple[str, ...]
    material: Mapping[str, str]

    def made(self, algorithm: str) -> PyJWK:
        return PyJWK(dict(self.material), algorithm)


def read_keys(said: object) -> list[Key]:
    """Return the usable keys of a JSON Web Key Set: public, for signatures, asymmetric, long enough."""
    listed = said.get("keys") if isinstance(said, dict) else None
    if not isinstance(listed, list):
        raise ValueError("a key set is an object with a list of keys")  # noqa: TRY004 - it is somebody else's data
    return [key for jwk in listed[:MOST_KEYS] if (key := _key(jwk)) is not None]


class KeySet:
    """Finds keys by their ids. Only an https address is fetched, or one of this machine; redirects are not followed."""

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
        """Return the key of this id; without an id, the only one that the algorithm fits."""
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
                raise Refused(503, "keys_unavailable", "The issuer's keys cannot be fetched.")

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
    """Say what a key is for by what it is: never a shared secret, never none."""
    match jwk.get("kty"), jwk.get("crv"):
        case "RSA", _:
            return _RSA
        case "EC", str(curve):
            return _CURVES.get(curve, ())
        case "OKP", "Ed25519":
            return ("EdDSA",)
    return ()
