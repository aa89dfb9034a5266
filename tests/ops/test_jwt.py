from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._ops import jwt as keys_module
from holdfast._ops.caller import Person, RequestRefused, Role
from holdfast._ops.jwt import JwtAccess, KeySet, read_keys
from tests.kit.clock import Clock
from tests.kit.issuer import AUDIENCE, ISSUER, Issuer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def access(issuer: Issuer) -> JwtAccess:
    return JwtAccess(issuer=ISSUER, audience=AUDIENCE, keys=issuer.keys)


@pytest.mark.parametrize(
    ("alg", "kid"), [("RS256", "r1"), ("PS384", "r1"), ("ES256", "e1"), ("EdDSA", "d1"), ("ES256", None)]
)
async def test_a_token_of_the_issuer_names_a_person(
    access: JwtAccess, issuer: Issuer, alg: str, kid: str | None
) -> None:
    key = issuer.ec if kid is None else None
    verified = await access.verify(issuer.token(alg=alg, kid=kid, key=key))
    assert verified is not None
    assert verified[0] == Person("ann", Role.DEVELOPER)
    assert 0 < verified[1] - time.time() <= 600


async def test_the_highest_of_several_roles_counts(access: JwtAccess, issuer: Issuer) -> None:
    verified = await access.verify(issuer.token(role=["viewer", "admin", "operator"]))
    assert verified is not None
    assert verified[0] == Person("ann", Role.OPERATOR)


async def test_the_issuers_own_words_stand_for_roles(issuer: Issuer) -> None:
    access = JwtAccess(
        issuer=ISSUER,
        audience=AUDIENCE,
        keys=issuer.keys,
        role_claim="groups",
        name_claim="email",
        roles={"sre": Role.OPERATOR},
    )
    verified = await access.verify(issuer.token(groups=["sre"], email="ann@example.org"))
    assert verified is not None
    assert verified[0] == Person("ann@example.org", Role.OPERATOR)
    with pytest.raises(RequestRefused) as refused:
        await access.verify(issuer.token(groups=["developer"], email="ann@example.org"))
    assert refused.value.status == 403


async def test_a_token_that_has_just_expired_is_let_in_for_the_leeway_alone(access: JwtAccess, issuer: Issuer) -> None:
    assert await access.verify(issuer.token(exp=time.time() - 1)) is not None
    assert await access.verify(issuer.token(exp=time.time() - 60)) is None
    assert await access.verify(issuer.token(nbf=time.time() + 600)) is None


@pytest.mark.parametrize("name", ["", "a" * 201, "line\nbreak", 7, None])
async def test_a_name_that_cannot_stand_in_the_audit_is_refused(access: JwtAccess, issuer: Issuer, name: Any) -> None:
    assert await access.verify(issuer.token(preferred=name, sub=name if isinstance(name, str) else None)) is None


def test_keys_that_cannot_be_trusted_are_left_out(issuer: Issuer) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from jwt.algorithms import RSAAlgorithm

    weak = rsa.generate_private_key(65_537, 1_024)  # noqa: S505 - it is to be refused
    short = RSAAlgorithm.to_jwk(weak.public_key(), as_dict=True)
    odd: list[Any] = [
        short,
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "RSA"},
        {"kty": "EC", "crv": "secp256k1"},
        {**issuer.keys["keys"][0], "use": "enc"},
        {**issuer.keys["keys"][0], "alg": "HS256"},
        {**issuer.keys["keys"][0], "alg": "none"},
        "no key",
        None,
    ]
    assert read_keys({"keys": odd}) == []
    assert [key.id for key in read_keys(issuer.keys)] == ["r1", "e1", "d1"]


def test_a_private_key_that_was_given_by_mistake_is_kept_as_a_public_one(issuer: Issuer) -> None:
    from jwt.algorithms import RSAAlgorithm

    (key,) = read_keys({"keys": [RSAAlgorithm.to_jwk(issuer.rsa, as_dict=True)]})
    assert set(key.material) == {"kty", "n", "e"}


@pytest.mark.parametrize(
    "url", ["http://issuer.example/keys", "ftp://127.0.0.1/keys", "file:///etc/passwd", "https://", "127.0.0.1/keys"]
)
def test_keys_are_fetched_over_https_or_from_this_machine(url: str) -> None:
    with pytest.raises(ValueError, match="https"):
        KeySet(url=url)


@pytest.mark.parametrize("options", [{}, {"jwks_url": "https://a.example/keys", "keys": {"keys": []}}])
def test_keys_come_from_one_place(options: Any) -> None:
    with pytest.raises(ValueError, match="not both"):
        JwtAccess(issuer=ISSUER, audience=AUDIENCE, **options)


class Publisher:
    """Publishes a key set on this machine, and counts who asks."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.status = 200
        self.asked = 0
        publisher = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                publisher.asked += 1
                body = json.dumps(publisher.answer).encode()
                self.send_response(publisher.status)
                if publisher.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/keys"


@contextmanager
def published(answer: Any) -> Iterator[Publisher]:
    publisher = Publisher(answer)
    thread = threading.Thread(target=publisher.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield publisher
    finally:
        publisher.server.shutdown()
        thread.join()
        publisher.server.server_close()


async def test_keys_are_fetched_once_and_again_when_an_unknown_one_is_used(issuer: Issuer) -> None:
    clock = Clock(100_000.0)
    with published({"keys": issuer.keys["keys"][:1]}) as publisher:
        keys = KeySet(url=publisher.url, clock=clock)
        assert await keys.find("r1", "RS256") is not None
        assert await keys.find("r1", "RS256") is not None
        assert publisher.asked == 1
        for _ in range(20):
            assert await keys.find("e1", "ES256") is None
        assert publisher.asked == 1, "a stranger's key ids make nobody fetch again and again"
        publisher.answer = issuer.keys
        clock.now += keys_module.AGAIN
        assert await keys.find("e1", "ES256") is not None
        assert publisher.asked == 2
        clock.now += keys_module.FRESH
        assert await keys.find("e1", "ES256") is not None
        assert publisher.asked == 3


@pytest.mark.parametrize("how", ["status", "redirect", "nonsense", "large"])
async def test_keys_are_used_for_an_hour_when_they_cannot_be_fetched(issuer: Issuer, how: str) -> None:
    clock = Clock(100_000.0)
    with published(issuer.keys) as publisher:
        keys = KeySet(url=publisher.url, clock=clock)
        assert await keys.find("r1", "RS256") is not None
        publisher.status = {"status": 500, "redirect": 302}.get(how, 200)
        publisher.answer = {"nonsense": [], "large": {"keys": ["x" * keys_module.LARGEST]}}.get(how, issuer.keys)
        clock.now += keys_module.FRESH
        assert await keys.find("r1", "RS256") is not None
        assert publisher.asked == 2, "a redirect is not followed"
        clock.now += keys_module.STALE
        with pytest.raises(RequestRefused) as refused:
            await keys.find("r1", "RS256")
        assert (refused.value.status, refused.value.code) == (503, "keys_unavailable")


async def test_an_issuer_that_does_not_answer_is_not_waited_for_long(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    monkeypatch.setattr(keys_module, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        access = JwtAccess(
            issuer=ISSUER, audience=AUDIENCE, jwks_url=f"http://127.0.0.1:{silent.getsockname()[1]}/keys"
        )
        with pytest.raises(RequestRefused, match="cannot be fetched"):
            await access.verify(issuer.token())
