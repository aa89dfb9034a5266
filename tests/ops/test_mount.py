"""Under any path of another site, which has ways, errors and a lifespan of its own."""

from __future__ import annotations

import asyncio
import gc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import fastapi
import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from holdfast import SettingsError
from holdfast._ops.access import COOKIE
from holdfast.ops import Person, Role, operations
from tests.kit.access import PATIENT
from tests.kit.asking import Asked, ask, bearer
from tests.kit.django_config import configure
from tests.ops.cases import CSRF, RETRY
from tests.ops.serving import Served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from tests.kit.shop import Shop

ROOT = "/internal/holdfast"


def home(_: Request) -> PlainTextResponse:
    return PlainTextResponse("the site's own page")


def in_starlette(site: Starlette) -> ASGIApp:
    return Starlette(routes=[Route("/", home), Mount(ROOT, site)])


def in_fastapi(site: Starlette) -> ASGIApp:
    web = fastapi.FastAPI()
    web.get("/")(lambda: "the site's own page")
    web.mount(ROOT, site)
    return web


def in_starlette_in_fastapi(site: Starlette) -> ASGIApp:
    web = fastapi.FastAPI()
    web.get("/")(lambda: "the site's own page")
    web.mount("/internal", Starlette(routes=[Mount("/holdfast", site)]))
    return web


def in_django(site: Starlette) -> ASGIApp:
    configure()
    from django.core.handlers.asgi import ASGIHandler

    django: Any = ASGIHandler()
    return Starlette(routes=[Mount(ROOT, site), Mount("/", django)])


@pytest.fixture(params=[in_starlette, in_fastapi, in_starlette_in_fastapi, in_django])
def mounted(request: pytest.FixtureRequest, site: Starlette) -> ASGIApp:
    web: ASGIApp = request.param(site)
    return web


async def test_it_answers_below_its_path(mounted: ASGIApp, tokens: Mapping[Role, str]) -> None:
    answered = await ask(mounted, Asked("GET", f"{ROOT}/api/v1/me", headers=bearer(tokens[Role.VIEWER])))
    assert (answered.status, answered.json["role"]) == (200, "viewer")
    assert (await ask(mounted, Asked("GET", f"{ROOT}/"))).headers["content-type"].startswith("text/html")
    assert (await ask(mounted, Asked("GET", f"{ROOT}/api/v1/me"))).refusal.code == "unauthorized"
    nowhere = await ask(mounted, Asked("GET", f"{ROOT}/nowhere"))
    assert (nowhere.status, nowhere.refusal.code) == (404, "not_found")
    assert nowhere.headers["x-content-type-options"] == "nosniff"
    wrong = await ask(mounted, Asked("PUT", f"{ROOT}/api/v1/me"))
    assert (wrong.status, wrong.headers["allow"]) == (405, "GET")


async def test_without_the_slash_at_its_end_it_leads_there(mounted: ASGIApp) -> None:
    answered = await ask(mounted, Asked("GET", ROOT))
    assert answered.status in {307, 404}
    if answered.status == 307:
        assert answered.headers["location"].endswith(f"{ROOT}/")


async def test_a_session_is_for_its_path_alone(mounted: ASGIApp, tokens: Mapping[Role, str]) -> None:
    signed_in = await ask(
        mounted, Asked("POST", f"{ROOT}/api/v1/session", json={"token": tokens[Role.OPERATOR]}, scheme="https")
    )
    assert f"Path={ROOT};" in signed_in.headers["set-cookie"]
    cookie = signed_in.headers["set-cookie"].partition(";")[0]
    assert cookie.startswith(COOKIE)
    acting = Asked("POST", f"{ROOT}/api/v1/jobs/actions", json=RETRY, headers=(("cookie", cookie), *CSRF))
    assert (await ask(mounted, acting)).status == 200


async def test_the_document_is_right_wherever_it_is_mounted(mounted: ASGIApp) -> None:
    document = (await ask(mounted, Asked("GET", f"{ROOT}/api/v1/openapi.json"))).json
    there = httpx.URL(f"http://ops.example{ROOT}/api/v1/openapi.json").join(document["servers"][0]["url"])
    assert str(there) == f"http://ops.example{ROOT}/"


async def test_the_site_beside_it_is_left_alone(mounted: ASGIApp) -> None:
    configure()
    from django.test import override_settings

    with override_settings(ALLOWED_HOSTS=["*"]):
        answered = await ask(mounted, Asked("GET", "/"))
    assert answered.status in {200, 404}
    assert b"own page" in answered.body or b"Not Found" in answered.body
    assert "content-security-policy" not in answered.headers


async def test_where_a_dispatcher_takes_the_path_off_the_slash_is_added(site: Starlette) -> None:
    scope = Asked("GET", ROOT).scope() | {"root_path": ROOT}
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await site(scope, receive, send)
    assert sent[0]["status"] == 307
    assert dict(sent[0]["headers"])[b"location"] == b"holdfast/"


async def test_django_says_who_asks(shop: Shop) -> None:
    configure()
    from django.core import signing

    def staff(request: Request) -> Person | None:
        try:
            return Person(signing.loads(request.cookies.get("staff", ""), max_age=60), Role.OPERATOR)
        except signing.BadSignature:
            return None

    site = operations(shop.app, authenticate=staff, timeout=PATIENT)
    web = in_django(site)
    cookie = ("cookie", f"staff={signing.dumps('grace')}")
    assert (await ask(web, Asked("GET", f"{ROOT}/api/v1/me", headers=(cookie,)))).json["name"] == "grace"
    assert (await ask(web, Asked("GET", f"{ROOT}/api/v1/me", headers=(("cookie", "staff=grace"),)))).status == 401
    await site.state.operations.close()


# --- what is open, and for how long


def test_in_another_event_loop_it_opens_anew(shop: Shop, tokens: Mapping[Role, str]) -> None:
    site = operations(shop.app, timeout=PATIENT)

    async def once() -> int:
        answered = await ask(site, Asked("GET", "/api/v1/jobs", headers=bearer(tokens[Role.VIEWER])))
        await site.state.operations.close()
        return answered.status

    assert [asyncio.run(once()), asyncio.run(once())] == [200, 200]


async def test_served_by_itself_it_closes_its_connections(shop: Shop, tokens: Mapping[Role, str]) -> None:
    site = operations(shop.app, timeout=PATIENT)
    headers = dict(bearer(tokens[Role.VIEWER]))
    with Served(site) as served:
        async with httpx.AsyncClient(base_url=served.url, trust_env=False, timeout=30) as client:
            assert (await client.get("/api/v1/jobs", headers=headers)).status_code == 200
        opened = site.state.operations.first._open
        assert not opened.service._pool._pool.closed
    assert opened.service._pool._pool.closed
    assert site.state.operations.first._open is None


async def test_a_site_with_a_lifespan_can_close_it(shop: Shop, tokens: Mapping[Role, str]) -> None:
    site = operations(shop.app, timeout=PATIENT)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with site.router.lifespan_context(site):
            yield

    web = Starlette(routes=[Mount(ROOT, site)], lifespan=lifespan)
    async with web.router.lifespan_context(web):
        answered = await ask(web, Asked("GET", f"{ROOT}/api/v1/jobs", headers=bearer(tokens[Role.VIEWER])))
        assert answered.status == 200
    assert site.state.operations.first._open is None
    gc.collect()


async def test_no_more_connections_are_opened_than_it_may(shop: Shop, tokens: Mapping[Role, str]) -> None:
    site = operations(shop.app, connections=2, timeout=PATIENT)
    asked = Asked("GET", "/api/v1/overview", headers=bearer(tokens[Role.VIEWER]))
    answered = await asyncio.gather(*(ask(site, asked) for _ in range(20)))
    assert [one.status for one in answered] == [200] * 20
    assert site.state.operations.first.service._pool._pool.get_stats()["pool_size"] <= 2
    await site.state.operations.close()


def test_without_a_database_it_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "HOLDFAST_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError, match="no database"):
        operations()


async def test_the_address_may_come_from_the_environment(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tokens: Mapping[Role, str]
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", shop.app.url)
    site = operations(timeout=PATIENT)
    answered = await ask(site, Asked("GET", f"/api/v1/jobs/{shop.waiting}", headers=bearer(tokens[Role.VIEWER])))
    assert (answered.json["kind"], answered.json["payload"]["password"]) == ("mail.send", "[redacted]")
    assert answered.json["payload_bytes"] > len('{"password":""}')
    await site.state.operations.close()


async def test_a_database_that_is_gone_is_said_so(tokens: Mapping[Role, str]) -> None:
    site = operations(url="postgresql://127.0.0.1:1/none")
    answered = await ask(site, Asked("GET", "/api/v1/jobs", headers=bearer(tokens[Role.VIEWER])))
    assert answered.status == 503
    assert answered.refusal.code in {"busy", "database_unreachable"}
    assert (await ask(site, Asked("GET", "/live"))).status == 200
    await site.state.operations.close()
