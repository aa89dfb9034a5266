"""Behind a proxy that signs people in: who comes in, under which name and role, and what others cannot do."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest

from holdfast.ops import JwtAccess, operations
from tests.kit.access import PATIENT
from tests.kit.issuer import ISSUER, Issuer
from tests.kit.sign_in import CLIENT, provider, proxy
from tests.ops.serving import Served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.shop import Shop

PAUSE = {"action": "pause", "reason": "the mail server moves"}


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@contextmanager
def signed_in_by(issuer: Issuer, shop: Shop, **claims: Any) -> Iterator[tuple[httpx.Client, str]]:
    """Yield the browser of a person with these claims, and the address of the pages without the proxy."""
    access = JwtAccess(issuer=ISSUER, audience=CLIENT, keys=issuer.keys, name_claim="email")
    with ExitStack() as stack:
        pages = stack.enter_context(Served(operations(shop.app, jwt=access, timeout=PATIENT)))
        identity = stack.enter_context(Served(provider(issuer, {"aud": CLIENT, **claims})))
        front = stack.enter_context(Served(proxy(identity.url, pages.url)))
        options: dict[str, Any] = {"follow_redirects": True, "trust_env": False, "timeout": 30}
        browser = stack.enter_context(httpx.Client(base_url=front.url, **options))
        assert "<title>Holdfast</title>" in browser.get("/").text
        yield browser, pages.url


def test_a_person_is_signed_in_by_the_proxy_and_acts_under_their_name(issuer: Issuer, shop: Shop) -> None:
    with signed_in_by(issuer, shop, email="ann@example.org", role="operator") as (browser, _):
        me = browser.get("/api/v1/me").json()
        assert (me["name"], me["role"]) == ("jwt:ann@example.org", "operator")
        assert browser.post("/api/v1/queues/mail/actions", json=PAUSE).status_code == 200
        assert browser.get("/outbox/stats").status_code == 403
    with psycopg.connect(shop.app.url) as conn:
        audited = conn.execute("SELECT who, credential FROM holdfast.audit WHERE action = 'queue.pause'").fetchall()
    assert audited == [("jwt:ann@example.org", f"jwt:{ISSUER}")]


def test_a_header_that_names_a_person_lets_nobody_in(issuer: Issuer, shop: Shop) -> None:
    forged = {"x-forwarded-user": "ann", "x-forwarded-email": "ann@example.org", "x-auth-request-user": "ann"}
    with signed_in_by(issuer, shop, email="ann@example.org", role="operator") as (_, pages):
        assert httpx.get(f"{pages}/api/v1/me", headers=forged, trust_env=False).status_code == 401


@pytest.mark.parametrize(
    ("claims", "status"),
    [({"role": None}, 403), ({"aud": "another client"}, 401), ({"iss": "https://evil.test"}, 401)],
)
def test_a_person_without_a_role_or_of_somebody_else_sees_nothing(
    issuer: Issuer, shop: Shop, claims: dict[str, Any], status: int
) -> None:
    with signed_in_by(issuer, shop, **{"email": "eve@example.org", "role": "viewer"} | claims) as (browser, _):
        assert browser.get("/api/v1/me").status_code == status


def test_another_site_cannot_act_with_the_cookie_of_the_proxy(issuer: Issuer, shop: Shop) -> None:
    with signed_in_by(issuer, shop, email="dan@example.org", role="developer") as (browser, _):
        assert browser.get("/api/v1/me").status_code == 200
        for header in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}):
            refused = browser.post("/outbox/run-once", headers=header)
            assert (refused.status_code, refused.json()["type"]) == (403, "urn:holdfast:problem:csrf")
