from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast._drivers import run_sync
from holdfast._ops import access as access_module
from holdfast._ops.access import COOKIE
from holdfast._ops.caller import FAILURES, Token
from holdfast._store.access import revoke_access_token
from holdfast.ops import JwtAccess, Person, Role, operations
from tests.kit.access import PATIENT, make_token
from tests.kit.asking import Answered, Asked, ask, bearer
from tests.kit.clock import Clock
from tests.kit.issuer import AUDIENCE, ISSUER, Issuer
from tests.ops.cases import CSRF, RETRY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.applications import Starlette
    from starlette.requests import Request

    from tests.kit.shop import Shop

    Make = Callable[..., Starlette]

SECRET = "a secret of at least so many characters"  # noqa: S105 - guards nothing
ME = Asked("GET", "/api/v1/me")


@pytest.fixture
async def make(shop: Shop) -> AsyncIterator[Make]:
    sites: list[Starlette] = []

    def make(**options: Any) -> Starlette:
        sites.append(operations(shop.app, timeout=PATIENT, **options))
        return sites[-1]

    yield make
    for site in sites:
        await site.state.operations.close()


def me(token: str, **more: Any) -> Asked:
    return Asked("GET", "/api/v1/me", headers=bearer(token), **more)


def url(shop: Shop) -> str:
    return shop.app.url


def revoke(shop: Shop, token: str) -> None:
    with psycopg.connect(url(shop)) as conn:
        assert run_sync(conn, revoke_access_token(token.split("_")[1]))


async def sign_in(site: Starlette, token: str, **more: Any) -> Answered:
    return await ask(site, Asked("POST", "/api/v1/session", json={"token": token}, **more))


def cookie(answered: Answered) -> tuple[tuple[str, str], ...]:
    value = answered.headers["set-cookie"].partition(";")[0]
    assert value.startswith(f"{COOKIE}=")
    return (("cookie", value),)


# --- tokens


async def test_a_token_is_looked_up_again_after_ten_seconds_so_that_revoking_works(make: Make, shop: Shop) -> None:
    site, clock, token = make(), Clock(1_000.0), make_token(url(shop), "viewer")
    site.state.operations.access._clock = clock
    assert (await ask(site, me(token))).json["name"].startswith("viewer ann")
    revoke(shop, token)
    clock.now += 9.9
    assert (await ask(site, me(token))).status == 200
    clock.now += 0.1
    answered = await ask(site, me(token))
    assert (answered.status, answered.refusal.detail) == (401, "This token was revoked.")


async def test_a_token_is_asked_of_the_database_once_in_ten_seconds(make: Make, tokens: Mapping[Role, str]) -> None:
    site, asked = make(), 0
    access = site.state.operations.access
    find = access._find

    async def counting(key: str) -> Any:
        nonlocal asked
        asked += 1
        return await find(key)

    access._find = counting
    for _ in range(20):
        assert (await ask(site, me(tokens[Role.VIEWER]))).status == 200
    assert asked == 1


async def test_what_is_remembered_of_tokens_is_bounded(make: Make, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "MOST_KNOWN", 3)
    site = make()
    for _ in range(6):
        assert (await ask(site, me(make_token(url(shop), "viewer")))).status == 200
    assert len(site.state.operations.access._known) == 3


async def test_a_token_without_an_end_holds(make: Make, shop: Shop) -> None:
    assert (await ask(make(), me(make_token(url(shop), "operator", days=None)))).json["role"] == "operator"


# --- the limit


async def test_an_address_that_fails_too_often_is_told_when_to_come_back(make: Make, shop: Shop) -> None:
    site = make()
    for _ in range(FAILURES):
        assert (await ask(site, me(Token.new().text))).status == 401
    good = make_token(url(shop), "viewer")
    for asked in (
        me(Token.new().text),
        me(good),
        me("no.such.token"),
        Asked("POST", "/api/v1/session", json={"token": good}),
    ):
        answered = await ask(site, asked)
        assert (answered.status, answered.refusal.code) == (429, "too_many_failures")
        assert 1 <= int(answered.headers["retry-after"]) <= 60
    assert (await ask(site, me(good, client="198.51.100.1"))).status == 200
    assert (await ask(site, Asked("GET", "/live"))).status == 200


async def test_who_was_known_before_is_not_held_up_by_others_at_the_same_address(
    make: Make, tokens: Mapping[Role, str]
) -> None:
    site, clock = make(), Clock(1_000.0)
    site.state.operations.access._clock = clock
    known = tokens[Role.VIEWER]
    assert (await ask(site, me(known))).status == 200
    signed_in = cookie(await sign_in(site, tokens[Role.OPERATOR]))
    for _ in range(FAILURES + 1):
        await ask(site, me(Token.new().text))
    clock.now += 100
    assert (await ask(site, me(known))).status == 200
    assert (await ask(site, Asked("GET", "/api/v1/me", headers=signed_in))).status == 200
    assert (await ask(site, me(known[:-1] + ("a" if known[-1] != "a" else "b")))).status == 429


async def test_failed_logins_count_as_failed_tokens_do(make: Make) -> None:
    site = make()
    for _ in range(FAILURES):
        assert (await sign_in(site, Token.new().text)).status == 401
    assert (await sign_in(site, Token.new().text)).status == 429


# --- sessions


async def test_a_browser_signs_in_acts_and_signs_out(make: Make, tokens: Mapping[Role, str]) -> None:
    site = make()
    answered = await sign_in(site, tokens[Role.OPERATOR])
    assert answered.json["role"] == "operator"
    answer = answered.headers["set-cookie"].lower()
    assert all(word in answer for word in ("httponly", "samesite=strict", "path=/;", "max-age=43200"))
    assert "secure" not in answer
    assert tokens[Role.OPERATOR].split("_", 2)[2] not in answered.headers["set-cookie"]
    session = cookie(answered)
    assert (await ask(site, Asked("GET", "/api/v1/me", headers=session))).json["name"] == "operator ann"
    acting = Asked("POST", "/api/v1/jobs/actions", json=RETRY, headers=(*session, *CSRF))
    assert (await ask(site, acting)).json["preview"] is True
    gone = await ask(site, Asked("DELETE", "/api/v1/session", headers=(*session, *CSRF)))
    assert gone.status == 200
    assert "max-age=0" in gone.headers["set-cookie"].lower()


async def test_a_cookie_is_secure_over_https(make: Make, tokens: Mapping[Role, str]) -> None:
    answered = await sign_in(make(), tokens[Role.VIEWER], scheme="https")
    assert "secure" in answered.headers["set-cookie"].lower()


async def test_a_session_ends_when_its_token_is_revoked(make: Make, shop: Shop) -> None:
    site, clock, token = make(), Clock(1_000.0), make_token(url(shop), "viewer")
    site.state.operations.access._clock = clock
    session = cookie(await sign_in(site, token))
    revoke(shop, token)
    clock.now += 10
    answered = await ask(site, Asked("GET", "/api/v1/me", headers=session))
    assert (answered.status, answered.refusal.code) == (401, "unauthorized")


async def test_processes_with_one_secret_know_each_others_sessions(make: Make, tokens: Mapping[Role, str]) -> None:
    session = cookie(await sign_in(make(secret=SECRET), tokens[Role.VIEWER]))
    asked = Asked("GET", "/api/v1/me", headers=session)
    assert (await ask(make(secret=SECRET), asked)).status == 200
    assert (await ask(make(), asked)).status == 401


async def test_a_browser_signs_in_with_a_jwt_for_as_long_as_that_holds(make: Make) -> None:
    issuer = Issuer()
    site = make(jwt=JwtAccess(issuer=ISSUER, audience=AUDIENCE, keys=issuer.keys))
    session = cookie(await sign_in(site, issuer.token(role="operator", sub="bob")))
    answered = await ask(site, Asked("GET", "/api/v1/me", headers=session))
    assert (answered.json["name"], answered.json["role"]) == ("jwt:bob", "operator")
    answer = site.state.operations.sessions.read(session[0][1].partition("=")[2])
    assert answer.until == pytest.approx(issuer_until(issuer), abs=60)


def issuer_until(issuer: Issuer) -> float:
    import jwt as library

    claims = library.decode(issuer.token(), options={"verify_signature": False})
    return float(claims["exp"])


# --- the host application's own word


def _ann(request: Request) -> Person | None:
    return Person("ann", Role.OPERATOR) if request.cookies.get("site") == "ann" else None


async def _ann_later(request: Request) -> Person | None:
    await asyncio.sleep(0)
    return _ann(request)


def _ann_promised(request: Request) -> Awaitable[Person | None]:
    return _ann_later(request)


SITE = (("cookie", "site=ann"),)


@pytest.mark.parametrize("authenticate", [_ann, _ann_later, _ann_promised], ids=["sync", "async", "awaitable"])
async def test_the_host_application_says_who_asks(make: Make, authenticate: Any, tokens: Mapping[Role, str]) -> None:
    site = make(authenticate=authenticate)
    assert (await ask(site, Asked("GET", "/api/v1/me", headers=SITE))).json["name"] == "ann"
    assert (await ask(site, ME)).status == 401
    assert (await ask(site, Asked("GET", "/outbox/stats", headers=SITE))).status == 403
    assert (await ask(site, me(tokens[Role.VIEWER]))).json["role"] == "viewer", "a token of ours holds all the same"


async def test_whom_a_cookie_of_the_host_names_needs_the_header_too(make: Make) -> None:
    site = make(authenticate=_ann)
    acting = Asked("POST", "/api/v1/jobs/actions", json=RETRY, headers=SITE)
    assert (await ask(site, acting)).refusal.code == "csrf"
    assert (await ask(site, Asked("POST", "/api/v1/jobs/actions", json=RETRY, headers=(*SITE, *CSRF)))).status == 200
    evil = (*SITE, *CSRF, ("origin", "https://evil.example"))
    assert (await ask(site, Asked("POST", "/api/v1/jobs/actions", json=RETRY, headers=evil))).refusal.code == "csrf"


async def test_whom_a_bearer_token_of_the_host_names_does_not(make: Make) -> None:
    def host(request: Request) -> Person | None:
        return Person("bot", Role.OPERATOR) if request.headers.get("authorization") == "Bearer of the host" else None

    site = make(authenticate=host)
    acting = Asked("POST", "/api/v1/jobs/actions", json=RETRY, headers=bearer("of the host"))
    assert (await ask(site, acting)).status == 200


async def test_a_host_that_fails_lets_nobody_in(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    def failing(_: Request) -> Person | None:
        raise KeyError("session")

    answered = await ask(make(authenticate=failing), Asked("GET", "/api/v1/me", headers=SITE))
    assert (answered.status, answered.refusal.code) == (500, "internal")
    assert "KeyError" not in answered.body.decode()
    assert "KeyError" in caplog.text


async def test_a_host_that_answers_with_something_else_lets_nobody_in(make: Make) -> None:
    answered = await ask(make(authenticate=lambda _: "ann"), ME)
    assert answered.status == 500


async def test_a_host_that_takes_long_is_not_waited_for(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "PATIENCE", 0.05)

    async def slow(_: Request) -> Person | None:
        await asyncio.Event().wait()
        return None

    answered = await ask(make(authenticate=slow), ME)
    assert (answered.status, answered.refusal.code) == (503, "authentication_slow")
