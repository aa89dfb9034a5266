from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from holdfast._ops import health
from holdfast.ops import Role, operations
from holdfast.telemetry import instrument
from tests.kit.access import PATIENT, make_token
from tests.kit.asking import Asked, ask, bearer
from tests.kit.shop import enqueue, make_app, tick
from tools.prometheus import promtool

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest
    from starlette.applications import Starlette

    from tests.kit.shop import Shop


def names(body: bytes) -> set[str]:
    return {family.name for family in text_string_to_metric_families(body.decode())}


async def test_metrics_of_the_fleet_are_for_viewers(site: Starlette, tokens: Mapping[Role, str]) -> None:
    assert (await ask(site, Asked("GET", "/metrics"))).status == 401
    answered = await ask(site, Asked("GET", "/metrics", headers=bearer(tokens[Role.VIEWER])))
    assert answered.headers["content-type"].startswith("text/plain")
    assert any(name.startswith("holdfast_queue") for name in names(answered.body)), names(answered.body)


async def test_promtool_finds_nothing_wrong_with_the_metrics(site: Starlette, tokens: Mapping[Role, str]) -> None:
    answered = await ask(site, Asked("GET", "/metrics", headers=bearer(tokens[Role.VIEWER])))
    promtool("check", "metrics", given=answered.body.decode())


async def test_metrics_may_be_for_everybody_and_nothing_else_is(shop: Shop) -> None:
    site = operations(shop.app, public_metrics=True, timeout=PATIENT)
    assert (await ask(site, Asked("GET", "/metrics"))).status == 200
    assert (await ask(site, Asked("GET", "/api/v1/overview"))).status == 401
    document = (await ask(site, Asked("GET", "/api/v1/openapi.json"))).json
    assert document["paths"]["/metrics"]["get"]["security"] == []
    await site.state.operations.close()


async def test_metrics_of_workers_in_this_process_are_among_them(database: str) -> None:
    app = make_app(database)
    site = operations(app, public_metrics=True, timeout=PATIENT)
    instrument(app, registry=CollectorRegistry())
    await enqueue(app, "mail.send", "a@example.org")
    await tick(app)
    answered = await ask(site, Asked("GET", "/metrics"))
    assert b'kind="mail.send"' in answered.body
    promtool("check", "metrics", given=answered.body.decode())
    await site.state.operations.close()


async def test_readiness_is_asked_of_the_database_once_a_second(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(database)
    site = operations(app, timeout=PATIENT)
    asked = 0
    troubles = health.troubles

    async def counting(*given: Any, **named: Any) -> Any:
        nonlocal asked
        asked += 1
        return await troubles(*given, **named)

    monkeypatch.setattr(health, "troubles", counting)
    answered = await asyncio.gather(*(ask(site, Asked("GET", "/ready")) for _ in range(30)))
    assert {one.status for one in answered} == {503}
    assert answered[0].json["problems"][0]["code"] == "no_worker"
    assert asked == 1
    await site.state.operations.close()
    site = operations(app, timeout=PATIENT)
    async with app.worker(heartbeat=timedelta(milliseconds=100)):
        assert (await ask(site, Asked("GET", "/ready"))).json == {"ready": True, "problems": []}
    await site.state.operations.close()


async def test_readiness_of_a_database_that_is_gone_is_said_without_its_address() -> None:
    site = operations(url="postgresql://ann:hush@127.0.0.1:1/none")
    answered = await ask(site, Asked("GET", "/ready"))
    assert (answered.status, answered.json["problems"][0]["code"]) == (503, "database_unreachable")
    assert b"hush" not in answered.body
    await site.state.operations.close()


async def test_a_token_of_nobody_does_not_help_where_metrics_are_public(shop: Shop) -> None:
    site = operations(shop.app, public_metrics=True, timeout=PATIENT)
    token = make_token(shop.app.url, "viewer")
    assert (await ask(site, Asked("GET", "/outbox/stats", headers=bearer(token)))).status == 403
    await site.state.operations.close()
