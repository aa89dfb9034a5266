"""Who asks, by a JSON Web Token of an issuer that the application trusts."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jwt

from holdfast.ops.keys import KeySet
from holdfast.ops.person import Person
from holdfast.ops.refusal import Refused
from holdfast.ops.role import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST = 4_096
LEEWAY = 5.0
_NAME_LIMIT = 200
_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_REQUIRED = ["exp", "iss", "aud"]


class Vouched(NamedTuple):
    """Whom a token names, and until when."""

    person: Person
    until: float


class JwtAccess:
    """Trusts the tokens that `issuer` signed for `audience` with a key of its set.

    The keys are fetched from `jwks_url`, or given as a key set. Signatures are RSA, EC or Ed25519, whatever a token
    says of itself; it must expire. `role_claim` holds `viewer`, `operator` or `developer`, or a list with one of them:
    the highest counts. `roles` says which role a value of the claim stands for, where the issuer has words of its own.
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
        """Return whom a token names as the audit says it: nobody can take the name of a local token or login."""
        return replace(person, name=f"jwt:{person.name}", credential=f"jwt:{self._issuer}")

    @staticmethod
    def looks_like(token: str) -> bool:
        return len(token) <= LONGEST and _SHAPE.fullmatch(token) is not None

    async def vouched(self, token: str) -> Vouched | None:
        """Return whom the token names; None when it is not to be trusted. One that names no role is refused."""
        claims = await self._claims(token)
        if claims is None:
            return None
        name = claims.get(self._name_claim)
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_LIMIT or not name.isprintable():
            return None
        role = self._role(claims.get(self._role_claim))
        if role is None:
            raise Refused(403, "no_role", "This token names nobody who may look here.")
        return Vouched(Person(name, role), float(claims["exp"]))

    async def _claims(self, token: str) -> Mapping[str, Any] | None:
        if not self.looks_like(token):
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
