"""An issuer of JWTs: its keys, its tokens, and tokens that others forge in its name."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://issuer.example"
AUDIENCE = "holdfast"


class Issuer:
    def __init__(self) -> None:
        self.rsa = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.ed = ed25519.Ed25519PrivateKey.generate()
        self.stranger = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        self.keys: dict[str, Any] = {
            "keys": [
                {**RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True), "kid": "r1", "use": "sig"},
                {**ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True), "kid": "e1", "alg": "ES256"},
                {**OKPAlgorithm.to_jwk(self.ed.public_key(), as_dict=True), "kid": "d1"},
                {"kty": "oct", "kid": "shared", "k": _text(b"a secret that must never be used here!!!")},
            ]
        }

    def token(self, *, alg: str = "RS256", kid: str | None = "r1", key: Any = None, **claims: Any) -> str:
        """Return a token that holds, these claims unless others are given; a claim that is None is left out."""
        signed = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "ann",
            "role": "developer",
            "exp": time.time() + 600,
            **claims,
        }
        own: dict[str, Any] = {"r": self.rsa, "e": self.ec, "d": self.ed}
        headers = {} if kid is None else {"kid": kid}
        return jwt.encode(
            {name: value for name, value in signed.items() if value is not None},
            key or own[(kid or "r")[0]],
            algorithm=alg,
            headers=headers,
        )

    def unsigned(self, alg: str = "none") -> str:
        """Return a token that claims to need no signature."""
        _, claims, _ = self.token().split(".")
        return f"{_json({'alg': alg, 'typ': 'JWT', 'kid': 'r1'})}.{claims}."

    def confused(self, kid: str = "r1", secret: bytes | None = None) -> str:
        """Return a token signed with HS256, by the public key as if it were a shared secret."""
        public = self.rsa.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        _, claims, _ = self.token().split(".")
        signed = f"{_json({'alg': 'HS256', 'typ': 'JWT', 'kid': kid})}.{claims}"
        mac = hmac.digest(public if secret is None else secret, signed.encode(), hashlib.sha256)
        return f"{signed}.{_text(mac)}"

    def tampered(self) -> str:
        """Return a token whose role was raised after it was signed."""
        header, claims, signature = self.token(role="viewer").split(".")
        signed = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        return f"{header}.{_json({**signed, 'role': 'developer'})}.{signature}"

    def with_header(self, **fields: Any) -> str:
        """Return a token with a stranger's signature, and a header that says where to find the stranger's key."""
        key = RSAAlgorithm.to_jwk(self.stranger.public_key(), as_dict=True)
        signed = {"sub": "ann", "role": "developer", "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 600}
        return jwt.encode(signed, self.stranger, algorithm="RS256", headers={"kid": "r1", "jwk": key, **fields})


def _json(value: object) -> str:
    return _text(json.dumps(value).encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
