"""Every line of the table is refused as it says, and nothing secret is repeated or logged."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._store.access import revoke_access_token
from holdfast.ops import JwtAccess, Role, operations
from tests.kit.access import PATIENT, make_token
from tests.kit.asking import Asked, ask, bearer
from tests.kit.issuer import AUDIENCE, ISSUER, Issuer
from tests.ops.cases import CASES, CSRF, RETRY, Case, World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.applications import Starlette

    from tests.kit.shop import Shop


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
async def site(shop: Shop, issuer: Issuer) -> AsyncIterator[Starlette]:
    access = JwtAccess(issuer=ISSUER, audience=AUDIENCE, keys=issuer.keys)
    site = operations(shop.app, jwt=access, timeout=PATIENT)
    yield site
    await site.state.operations.close()


@pytest.fixture(scope="module")
def ended(shop: Shop) -> tuple[str, str]:
    """A token that has expired, and one that was revoked."""
    expired, revoked = make_token(shop.app.url, "developer", days=-1.0), make_token(shop.app.url, "developer")
    with psycopg.connect(shop.app.url) as conn:
        assert run_sync(conn, revoke_access_token(revoked.split("_")[1]))
    return expired, revoked


@pytest.fixture
def world(site: Starlette, tokens: Mapping[Role, str], ended: tuple[str, str], issuer: Issuer) -> World:
    operator = tokens[Role.OPERATOR]
    cookie = site.state.operations.sessions.of_token(operator.split("_")[1])
    return World(tokens[Role.VIEWER], operator, tokens[Role.DEVELOPER], *ended, issuer, cookie)


def test_the_table_is_long_and_its_names_differ() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_it_is_refused(case: Case, site: Starlette, world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    asked = case.asked(world)
    answered = await ask(site, asked)
    assert (answered.status, answered.refusal.code) == (case.status, case.code), answered.body[:500]
    assert answered.refusal.detail
    assert len(answered.body) < 2_000
    assert answered.headers["content-type"] == "application/problem+json"
    assert answered.refusal.request_id == answered.headers["x-request-id"]
    assert answered.headers["cache-control"] == "no-store"
    assert ("www-authenticate" in answered.headers) == (case.status == 401)
    assert ("allow" in answered.headers) == (case.status == 405)
    assert "access-control-allow-origin" not in answered.headers
    assert "set-cookie" not in answered.headers
    logged = caplog.text + str([vars(record) for record in caplog.records])
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], caplog.text
    for secret in world.secrets(asked):
        assert secret not in answered.body.decode()
        assert secret not in logged


async def test_what_the_world_may_do_is_done(site: Starlette, world: World) -> None:
    """Else the table would prove nothing."""
    acting = Asked("POST", "/api/v1/jobs/actions", json=RETRY, headers=bearer(world.operator))
    assert (await ask(site, acting)).status == 200
    for more in ((), (("origin", "http://ops.example"),), (("sec-fetch-site", "same-origin"), ("origin", "http://x"))):
        assert (await ask(site, replace(acting, headers=(*world.session, *CSRF, *more)))).status == 200
    looking = Asked("GET", "/outbox/stats", headers=bearer(world.issuer.token()))
    assert (await ask(site, looking)).status == 200
    login = Asked(
        "POST", "/api/v1/session", json={"token": world.viewer}, headers=(("origin", "http://ops.example:80"),)
    )
    assert (await ask(site, login)).status == 200
